// Kernels that work for any operator: the redirect to a CPU kernel, and the real backend's CPU fallback.
#pragma once

#include "rules/rules.h"

#include <ATen/core/boxing/KernelFunction.h>

namespace anymps {

// Runs the kernel of `host_key` (CPU or SparseCPU) on aliases of the arguments: what stands for a native MPS kernel.
c10::KernelFunction make_redirect(const Rule& rule, c10::DispatchKey host_key);

// What a typed kernel calls with aliases, for a substrate that does not compute at once: the operator's own kernels, or
// `kernel`, if it is valid, which takes aliases unless it `reads_memory` itself.
c10::KernelFunction make_arranged(const Rule& rule, c10::KernelFunction kernel, bool reads_memory);

// Copies to the CPU, runs there, copies back, with the real backend's warnings: for operators that always fall back.
c10::KernelFunction make_fallback(const Rule& rule);

// For an operator that this torch makes of others, and that the launcher of PyTorch's own kernels is offered whole
// (launched_composite.cpp).
c10::KernelFunction make_launched_composite(const Rule& rule);

// For operators that have neither an MPS kernel nor a composite one: raises, or falls back, as the environment said.
c10::KernelFunction make_catch_all();
void set_fallback_allowed(bool allowed);

}  // namespace anymps
