// Operators without arithmetic, of the `shape` substrate: what meta kernels do not tell is answered by a stated policy.
//
// The policy, stated in docs/architecture/plan.md: everything is nonzero, selected and unique; nothing is repeated. Each such
// answer leaves a mark `anymps::assumed.<what>` on the tape.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

namespace anymps {

// A truth value or byte for each element, which selects some.
bool is_mask(const at::Tensor& tensor);

// Runs the operator on meta tensors, or does what the policy says. Arguments and results as for a boxed kernel. `selected`
// is how many elements each mask among the arguments selects, in their order; -1 where its values are unknown.
void compute_shapes(
    const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<int64_t>& selected);

// A meta tensor with the geometry of `tensor`.
at::Tensor shape_of(const at::Tensor& tensor);

// Zeros that stand in for a tensor without values. Raises torch's RuntimeError, in our words, if they are too many.
at::Tensor zeros_like_on_cpu(const at::Tensor& tensor);

}  // namespace anymps
