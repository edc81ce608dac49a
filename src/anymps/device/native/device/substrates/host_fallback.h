// A call that a GPU's kernels do not compute: its arguments to the CPU, the call there, and back what it wrote and made.
#pragma once

#include "device/interface/substrate.h"
#include "rules/rules.h"

#include <ATen/core/stack.h>

#include <string>

namespace anymps {

// `stack` holds the call's aliases, from `first` on. Exactly the elements that each tensor shows are copied, and those of
// written ones come back; tensors that share a storage with a written one share one on the CPU, too.
void run_host_fallback(
    const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first, const Computation& how, c10::Device gpu);

// Where a GPU's kernels part from a Mac's, operator by operator.
struct GpuLimit {
  using Arguments = c10::ArrayRef<c10::IValue>;
  bool never = false;  // the CPU computes it always
  // Whether the Mac and the CPU refuse these arguments, which a GPU takes: the CPU then says so.
  bool (*refused)(Arguments given) = nullptr;
  // Changes the arguments from `first` on, before the GPU's kernel.
  void (*before)(torch::jit::Stack& stack, size_t first) = nullptr;
  // Changes the results from `first` on; `given` are the arguments as they were.
  void (*after)(Arguments given, torch::jit::Stack& stack, size_t first) = nullptr;
};

// Null if nothing is known of the operator, a full name ("aten::mean.out").
const GpuLimit* gpu_limit(const std::string& name);

}  // namespace anymps
