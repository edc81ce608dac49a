// Kernels that work for any operator: the redirect to a CPU kernel, and the real backend's CPU fallback.
#pragma once

#include "rules/rules.h"

#include <ATen/core/boxing/KernelFunction.h>

namespace anymps {

// Runs the kernel of `host_key` (CPU or SparseCPU) on aliases of the arguments: what stands for a native MPS kernel.
c10::KernelFunction make_redirect(const Rule& rule, c10::DispatchKey host_key);

// The ways of a typed kernel's calls that need more than the CPU's kernel.
struct BoxedWays {
  // Makes what is called with aliases in place of the operator's own kernels, unless it `reads_memory` itself.
  using Own = c10::KernelFunction (*)(const Rule&);
  void arrange(const Rule& rule, Own own, bool reads_memory);

  c10::KernelFunction redirect;
  c10::KernelFunction arranged;  // for a substrate that does not compute at once; not valid for others
  bool plain = false;            // there: whether the operator's kernel, or the host, is tried first
};

// Copies to the CPU, runs there, copies back, with the real backend's warnings: for operators that always fall back.
c10::KernelFunction make_fallback(const Rule& rule);

// For an operator that this torch makes of others, and that the launcher of PyTorch's own kernels is offered whole
// (launched_composite.cpp).
c10::KernelFunction make_launched_composite(const Rule& rule);

// For operators that have neither an MPS kernel nor a composite one: raises, or falls back, as the environment said.
c10::KernelFunction make_catch_all();
void set_fallback_allowed(bool allowed);

}  // namespace anymps
