// Indices and probabilities that a card's kernels would stop the card for, or follow out of their tensor: made harmless before
// the kernel runs.
//
// Nobody waits for the answer. They go to the kernel clamped to their range, and whether that has changed one is looked at where
// the host waits next (device/memory/late_checks.h): then it is the Mac's late error. What a call with a bad index has computed
// until then is that of the nearest good one, where a Mac reads zero.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

namespace anymps {

// Replaces them among the aliases from `first` on. Only where `is_looked_at` says that there is something to look for. Raises
// c10::Error, with no words for the user, if the CPU has to say what is wrong.
void guard_arguments(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first);

// The same for one argument of a typed kernel. An undefined tensor: the CPU has to say what is wrong, or there is nothing to look at.
// An index of 0 to `size` - 1 of `dimension`.
at::Tensor harmless_index(const Rule& rule, const at::Tensor& given, int64_t size, int64_t dimension);
// Labels of `self`, the scores, of which those that are `ignored` may be any number.
at::Tensor harmless_target(const Rule& rule, const at::Tensor& self, const at::Tensor& given, int64_t ignored);

}  // namespace anymps
