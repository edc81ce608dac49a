// The real backend's CPU fallback: copies to the CPU, the operator there, copies back.
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

namespace anymps {

// Warns and runs the operator, with arguments and results on the stack as for a boxed kernel.
void fall_back(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack);

}  // namespace anymps
