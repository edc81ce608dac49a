// Other ways to compute a call than the CPU's kernel on aliases: the real backend's fallback (copies to the CPU, the operator there,
// copies back), and a wider dtype where the CPU refuses one that MPS computes.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

namespace anymps {

// Warns and runs the operator, with arguments and results on the stack as for a boxed kernel.
void fall_back(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Whether this was a call to be widened, and is computed: by the CPU kernel, which may have the dtype for these arguments
// after all; if it says that it lacks it, by a wider one. What else it says, torch's code for all devices says: a wider dtype
// must not get round it. The arguments begin at `first`.
bool compute_widely(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, torch::jit::Stack* stack, size_t first);

}  // namespace anymps
