// Which operators have a kernel other than the boxed redirect. Each file of this folder adds its own.
#pragma once

#include "rules/rules.h"

#include <ATen/core/boxing/KernelFunction.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace anymps {

using KernelFactory = c10::KernelFunction (*)(const Rule&);

template <class Op>
std::string full_name() {
  std::string name = Op::name;
  if (Op::overload_name[0] != '\0') {
    name += '.';
    name += Op::overload_name;
  }
  return name;
}

// The kernels that are not the boxed redirect, by full operator name. Each file adds its own.
struct KernelTable {
  std::vector<std::pair<std::string, KernelFactory>> rows;
};

void add_step_kernels(KernelTable& table);    // step_kernels.cpp: the operators of a training step, typed
void add_own_kernels(KernelTable& table);     // own_kernels.cpp: operators that the CPU lacks
void add_kernels_of_mps_alone(KernelTable& table);  // mps_alone.cpp: operators without a kernel of their name elsewhere
void add_layer_kernels(KernelTable& table);   // layer_kernels.cpp: layers that are one operator on mps
void add_memory_kernels(KernelTable& table);  // memory_kernels.cpp: allocation, views, copies, reads
void add_random_kernels(KernelTable& table);  // drawing.cpp: operators that draw numbers
void add_limited_kernels(KernelTable& table);  // limits.cpp: operators that refuse some arguments on mps
std::unordered_map<std::string, ArgumentCheck> limit_checks();  // limit_checks.cpp, for the boxed redirect
std::unordered_map<std::string, ArgumentChange> argument_changes();  // zero_divisors.cpp, likewise
std::unordered_map<std::string, OwnComputation> own_computations();  // fused_steps.cpp, likewise

// Composite operators that ask for the device type inside: replaced, with autograd passing through them.
struct CompositeRow {
  std::string name;
  c10::KernelFunction kernel;
  c10::KernelFunction batched;  // for torch.vmap, on every device; not valid: torch's own
  const Rule** rule;            // where to put the operator's rule, or nullptr
};
using CompositeTable = std::vector<CompositeRow>;
void add_composite_kernels(CompositeTable& table);  // own_kernels.cpp

}  // namespace anymps
