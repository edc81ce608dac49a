// Numbers of Python beside tensors, which torch hands over as 0-dim tensors of float64 or int64.
#pragma once

#include <ATen/core/Tensor.h>

namespace anymps {

// Replaces `number` by the same one in float32, if that is what the CPU's kernel would cast it to beside `tensor`. The kernel's own
// cast is four operators, more than the arithmetic on a small tensor.
void take_number_in_dtype_of(const at::Tensor& tensor, at::Tensor& number);

}  // namespace anymps
