// A call that a GPU's kernels do not compute: its arguments to the CPU, the call there, and back what it wrote and made.
#pragma once

#include "device/interface/substrate.h"

namespace anymps {

// `stack` holds the call's aliases, from `first` on. Exactly the elements that each tensor shows are copied, and those of
// written ones come back; tensors that share a storage with a written one share one on the CPU, too.
void run_host_fallback(
    const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first, const Computation& how, c10::Device gpu);

}  // namespace anymps
