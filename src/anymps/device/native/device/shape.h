// The `shape` substrate: operators without arithmetic, and what is answered where a program asks for a value.
//
// The policy, stated in docs/architecture.md: a number read back is 0 and a truth value False; everything is nonzero,
// selected and unique; nothing is repeated. Each such answer leaves a mark `anymps::assumed.<what>` on the tape.
#pragma once

#include "device/substrate.h"
#include "law/law.h"

#include <ATen/core/stack.h>
#include <c10/core/Scalar.h>

namespace anymps {

// Whether a call can be computed: all values that go in are known, and there are few of them.
class Survey {
 public:
  explicit Survey(const Rule& rule) : known_((rule.flags & kRandom) == 0 && rule.generator_argument < 0) {}
  void input(const at::Tensor& tensor);
  void output(const at::Tensor& tensor);
  void number(const c10::Scalar& value);
  void value(const c10::IValue& value, bool written);
  bool known();

 private:
  bool known_;
  double numbers_ = 0;  // the largest
  int64_t elements_ = 0;
  std::vector<at::Tensor> outputs_;
};

// How many elements each mask among the arguments selects, in their order; -1 where its values are unknown. Asked before
// the arguments are converted.
std::vector<int64_t> count_selected(const torch::jit::Stack& stack, size_t first);

// Runs the operator on meta tensors, or does what the policy says. Arguments and results as for a boxed kernel.
void compute_shapes(
    const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, const std::vector<int64_t>& selected);

// A copy between mps and CPU or within mps, both defined.
void copy_shapes(const at::Tensor& destination, const at::Tensor& source);

// The first element, or what the policy answers.
c10::Scalar read_shapes(const at::Tensor& tensor);

// Gives the storage room for another size, so that torch's own `resize_` has no bytes to copy.
void grow_shape(const at::Tensor& tensor, c10::IntArrayRef size);

// A meta tensor with the geometry of `tensor`.
at::Tensor shape_of(const at::Tensor& tensor);

// Zeros that stand in for a tensor without values. Raises torch's RuntimeError, in our words, if they are too many.
at::Tensor zeros_like_on_cpu(const at::Tensor& tensor);

// Marks on the tape that an answer was assumed.
void assume(const std::string& what);

// Raises NotImplementedError, in our words, on the `shape` substrate.
void check_not_sparse_shape();

}  // namespace anymps
