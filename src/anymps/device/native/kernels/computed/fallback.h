// Other ways to compute a call than the CPU's kernel on aliases: the real backend's fallback (copies to the CPU, the operator there,
// copies back), and a wider dtype where the CPU refuses one that MPS computes.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

#include <optional>

namespace anymps {

// Warns and runs the operator, with arguments and results on the stack as for a boxed kernel.
void fall_back(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The dtype that decides whether a call is widened, if it is to be: that of its first tensor, or of its argument `dtype`.
std::optional<c10::ScalarType> widened_dtype(
    const Rule& rule, c10::ArrayRef<c10::Argument> schema, const torch::jit::Stack& stack, size_t first);

// The CPU kernel, which may have the dtype for these arguments after all; if it says that it lacks it, a wider one. What
// else it says, torch's code for all devices says: a wider dtype must not get round it. The arguments begin at `first`.
void compute_widely(
    const Rule& rule,
    const c10::OperatorHandle& op,
    c10::DispatchKeySet key,
    torch::jit::Stack* stack,
    size_t first,
    c10::ScalarType narrow);

}  // namespace anymps
