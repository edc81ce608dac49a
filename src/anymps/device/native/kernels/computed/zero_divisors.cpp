// Integers divided by zero: MPS goes on where the CPU's kernels raise ZeroDivisionError.
//
// Metal Shading Language Specification, 3.1: division of an integer by zero "does not cause an exception but results in an
// unspecified value". Here it is the value of a division by one.
#include "kernels/redirect/kernel_table.h"
#include "recorder/recorder.h"

#include <ATen/ops/eq.h>
#include <ATen/ops/masked_fill.h>

namespace anymps {
namespace {

bool is_whole(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && c10::isIntegralType(value.toTensor().scalar_type(), /*includeBool=*/true)
                          : value.isScalar() && value.toScalar().isIntegral(/*includeBool=*/true);
}

// The arguments are `self`, `other`, and for `div` a rounding mode: without one the quotient is a float.
void settle_zero_divisors(const Rule& rule, std::vector<c10::IValue>& stack, size_t first) {
  c10::IValue& divisor = stack[first + 1];
  const bool is_true_division = stack.size() > first + 2 && stack[first + 2].isNone();
  if (is_true_division || !is_whole(stack[first]) || !is_whole(divisor) || !divisor.isTensor()) {
    return;
  }
  const at::Tensor& other = divisor.toTensor();
  const at::Tensor is_zero = at::eq(other, 0);
  if (!is_zero.any().item<bool>()) {
    return;
  }
  if (const HazardRow* row = zero_division()) {
    note_fault(*row, rule.name);
  }
  at::Tensor settled = at::masked_fill(other, is_zero, 1);
  if (other.unsafeGetTensorImpl()->is_wrapped_number()) {  // a number of Python's: the result keeps the other's dtype
    settled.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  divisor = std::move(settled);
}

}  // namespace

std::unordered_map<std::string, ArgumentChange> argument_changes() {
  std::unordered_map<std::string, ArgumentChange> changes;
  for (const char* name :
       {"div.Tensor_mode", "div.out_mode", "div_.Tensor_mode", "floor_divide", "floor_divide.out", "floor_divide_.Tensor",
        "fmod.Tensor", "fmod.Tensor_out", "fmod_.Tensor", "remainder.Scalar_Tensor", "remainder.Tensor", "remainder.Tensor_out",
        "remainder_.Tensor"}) {
    changes.emplace(std::string("aten::") + name, &settle_zero_divisors);
  }
  return changes;
}

}  // namespace anymps
