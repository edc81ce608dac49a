// Indices that a card's kernels would stop the card for, or follow out of their tensor: made harmless before the kernel runs.
//
// Nobody waits for the answer. Indices go to the kernel clamped to their range, and whether that has changed one is looked at
// where the host waits next (device/calls/late_checks.h): then it is the Mac's late error. What a call with a bad index has computed
// until then is that of the nearest good one, where a Mac reads zero.
#pragma once

#include "law/law.h"

#include <ATen/core/stack.h>

namespace anymps {

// Whether the operator takes such indices.
bool is_guarded(const Rule& rule);

// Replaces the indices among the aliases from `first` on.
void guard_indices(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first);

}  // namespace anymps
