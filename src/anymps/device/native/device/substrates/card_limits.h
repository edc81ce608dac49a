// Where a card's kernels part from a Mac's, operator by operator.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

#include <string>

namespace anymps {

struct CardLimit {
  using Arguments = c10::ArrayRef<c10::IValue>;
  bool never = false;  // the CPU computes it always
  // Whether the Mac and the CPU refuse these arguments, which a card takes: the CPU then says so.
  bool (*refused)(Arguments given) = nullptr;
  // Changes the arguments from `first` on, before the card's kernel.
  void (*before)(torch::jit::Stack& stack, size_t first) = nullptr;
  // Changes the results from `first` on; `given` are the arguments as they were.
  void (*after)(Arguments given, torch::jit::Stack& stack, size_t first) = nullptr;
};

// Null if nothing is known of the operator, a full name ("aten::mean.out").
const CardLimit* card_limit(const std::string& name);

// Whether values that a kernel would stop the card for are looked for before it (kernels/checks/guarded_arguments.h).
bool is_looked_at(const Rule& rule);

}  // namespace anymps
