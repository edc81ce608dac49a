// Calls for each tensor of a list whose arithmetic one kernel of a card does for all: the face for the kernels of single calls.
#pragma once

#include "law/law.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <functional>
#include <string>
#include <vector>

namespace anymps {
namespace lists {

// The calls that a list's kernel waits for, in their order. Each goes its whole way but for the arithmetic: checks, memory and
// entry are its own. One that is not the next computes itself, and so do all after it.
class Awaited {
 public:
  // `name`: the operator of each call, in full. `places`: where the tensor of each begins, one that it writes or, if `fresh` is
  // given, reads; `fresh` computes the results of all.
  Awaited(const char* name, std::vector<const void*> places, std::function<std::vector<at::Tensor>()> fresh = nullptr);
  ~Awaited();
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;

  // Whether a call is the next one, which then need not write `alias`.
  bool leaves(const Rule& rule, const at::Tensor& alias) {
    if (fresh_ != nullptr || !is_next(rule, alias)) {
      return false;
    }
    ++done_;
    return true;
  }
  // The result of a call that is the next one; undefined for any other.
  at::Tensor result_of(const Rule& rule, const at::Tensor& alias);

  size_t done() const {
    return done_;
  }

 private:
  bool is_next(const Rule& rule, const at::Tensor& alias) const {
    return done_ < places_.size() && rule.name == name_ && alias.unsafeGetTensorImpl()->data() == places_[done_];
  }

  const std::string name_;
  const std::vector<const void*> places_;
  std::function<std::vector<at::Tensor>()> fresh_;
  std::vector<at::Tensor> results_;
  size_t done_ = 0;
  Awaited* const around_;
};

// Those of the calling thread, or null.
extern thread_local Awaited* awaited;

// For a boxed call with `out=`: takes its arguments from `first` on off the stack and puts the result there if the list's kernel
// computes it.
bool leave_boxed(const Rule& rule, torch::jit::Stack& stack, size_t first);

// Whether lists are computed in one (true at the start), and how many were.
void compute_in_one(bool on);
int64_t computed_in_one();

}  // namespace lists
}  // namespace anymps
