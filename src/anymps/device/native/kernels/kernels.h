// The kernels of the virtual device, for any operator and for single ones.
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

void add_step_kernels(KernelTable& table);    // boxed.cpp: the operators of a training step, typed
void add_own_kernels(KernelTable& table);     // own_kernels.cpp: operators that the CPU lacks
void add_layer_kernels(KernelTable& table);   // layer_kernels.cpp: layers that are one operator on mps
void add_memory_kernels(KernelTable& table);  // memory_kernels.cpp: allocation, views, copies, reads
void add_random_kernels(KernelTable& table);  // drawing.cpp: operators that draw numbers
void add_limited_kernels(KernelTable& table);  // limits.cpp: operators that refuse some arguments on mps
std::unordered_map<std::string, ArgumentCheck> limit_checks();  // limit_checks.cpp, for the boxed redirect
std::unordered_map<std::string, ArgumentChange> argument_changes();  // likewise
std::unordered_map<std::string, OwnComputation> own_computations();  // fused_steps.cpp, likewise

// Composite operators that ask for the device type inside: replaced, with autograd passing through them.
struct CompositeRow {
  std::string name;
  c10::KernelFunction kernel;
  c10::KernelFunction batched;  // for torch.vmap, on every device; not valid: torch's own
};
using CompositeTable = std::vector<CompositeRow>;
void add_composite_kernels(CompositeTable& table);  // own_kernels.cpp

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

// For operators that have neither an MPS kernel nor a composite one: raises, or falls back, as the environment said.
c10::KernelFunction make_catch_all();
void set_fallback_allowed(bool allowed);

}  // namespace anymps
