// What each layout of indices means: which one is bad, and how a call becomes harmless without it.
//
// Reference: Indexing.mm, ScatterGather.mm, EmbeddingBag.mm and Pooling.mm with their kernels (.metal), torch 2.13 and
// 2.14. Which operator has which layout, and the words: anymps/rules/_device_checks.py.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace anymps::indices {

// What the indices of one tensor may be: `low` to `size` - 1.
struct Range {
  at::Tensor index;
  int64_t low, size, dimension = 0;
  bool strided = false;  // looked at by the kernel for tensors that are not contiguous
};

struct BadIndex {
  Range range;
  int64_t index = 0;
  int64_t position = 0;  // among the indices, in row-major order
};

// The text with what it says of the index.
std::string filled_in(std::string text, const BadIndex& bad);

bool is_index(const at::Tensor& tensor);

// The host arguments of one call, by name.
class HostCall {
 public:
  HostCall(const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) : op_(op), stack_(stack), first_(first) {}

  c10::IValue* find(const char* name) const {
    const auto& arguments = op_.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == name) {
        return &(*stack_)[first_ + i];
      }
    }
    return nullptr;
  }
  at::Tensor tensor(const char* name) const {
    const c10::IValue* value = find(name);
    return value != nullptr && value->isTensor() ? value->toTensor() : at::Tensor();
  }
  // The written argument that is not the first one.
  c10::IValue* out(const Rule& rule) const {
    for (size_t i = 1; i < op_.schema().arguments().size(); ++i) {
      if ((rule.writes >> i) & 1) {
        return &(*stack_)[first_ + i];
      }
    }
    return nullptr;
  }
  c10::IValue& front() const {
    return (*stack_)[first_];
  }
  // Whether it writes to memory that `tensor` shows.
  bool writes_to(const Rule& rule, const at::Tensor& tensor) const {
    for (size_t i = 0; i < op_.schema().arguments().size(); ++i) {
      const c10::IValue& value = (*stack_)[first_ + i];
      if (((rule.writes >> i) & 1) && value.isTensor() && value.toTensor().defined() && value.toTensor().is_alias_of(tensor)) {
        return true;
      }
    }
    return false;
  }

 private:
  const c10::OperatorHandle& op_;
  torch::jit::Stack* stack_;
  size_t first_;
};

// `replace` makes a call with bad indices harmless, after which `self` may be padded.
struct Layout {
  explicit Layout(const HostCall& call) : arguments(call) {}
  virtual ~Layout() = default;

  // None where every kernel's checks refuse the call.
  virtual std::vector<Range> ranges() = 0;
  // Puts other indices in the place of those that `ranges` tells.
  virtual void put(const std::vector<at::Tensor>& indices) = 0;
  std::optional<BadIndex> find();
  // Whether a kernel looks at the indices, if one is bad.
  virtual bool reaches_kernel() const {
    return true;
  }
  virtual void replace() = 0;
  // The whole call, for a layout that needs no kernel to go on; undefined: there is one to call after `replace`.
  virtual at::Tensor result() const {
    return {};
  }

  const HostCall& arguments;
};

// That of an operator whose rule has `indices`. It looks at the call as long as it lives.
std::unique_ptr<Layout> layout_of(const Rule& rule, const HostCall& call);

bool only_reads(const Rule& rule);

// The part of a padded tensor that has these sizes.
at::Tensor without_padding(at::Tensor tensor, c10::IntArrayRef sizes);

}  // namespace anymps::indices
