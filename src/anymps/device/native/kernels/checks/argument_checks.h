// Looks at the arguments of boxed calls: bad indices, dtypes without a kernel, values that would stop a GPU.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

namespace anymps {

// Raises what MPS says to the dtypes of a call: to that of its first tensor (anymps/rules/_dtypes.py), or where no kernel has them
// (anymps/rules/_metal_dtypes.py). A Mac looks for the kernel last: what the operator says of sizes comes before. The arguments
// are the caller's.
void check_kernels(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

// Runs the CPU kernel on host arguments (the last ones of `stack`, from `first` on), for an operator whose rule has
// `indices`. The CPU finds bad indices too; only then are they looked for, noted (waits.h) and replaced, and the kernel
// runs once more. Operators that write are looked at before, as half of their work may be done when the CPU stops.
void compute_with_indices(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, torch::jit::Stack* stack, size_t first);

// Whether an operator has indices or probabilities that a GPU's kernels would stop for, or follow out of their tensor.
bool is_looked_at(const Rule& rule);

// Makes these harmless among the aliases from `first` on, before the kernel of an operator that `is_looked_at` runs. Raises
// c10::Error, with no words for the user, if the CPU has to say what is wrong.
//
// Nobody waits for the answer. They go to the kernel clamped to their range, and whether that has changed one is looked at where
// the host waits next (device/memory/waits.h): then it is the Mac's late error. What a call with a bad index has computed
// until then is that of the nearest good one, where a Mac reads zero.
void guard_arguments(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first);

}  // namespace anymps
