// Operators that take indices: a bad one is the device's to find, while it runs.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

namespace anymps {

// Runs the CPU kernel on host arguments (the last ones of `stack`, from `first` on), for an operator whose rule has
// `indices`. The CPU finds bad indices too; only then are they looked for, noted (delayed.h) and replaced, and the kernel
// runs once more. Operators that write are looked at before, as half of their work may be done when the CPU stops.
void compute_with_indices(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, torch::jit::Stack* stack, size_t first);

}  // namespace anymps
