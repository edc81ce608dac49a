// Numbers of Python beside tensors, which torch hands over as 0-dim tensors of float64 or int64.
#pragma once

#include <ATen/core/Tensor.h>

namespace anymps {

// `number` in float32, if that is what the CPU's kernel would cast it to beside `tensor`; else nullptr. The kernel's own cast is
// four operators, more than the arithmetic on a small tensor. Holds until the thread's next call.
const at::Tensor* number_in_dtype_of(const at::Tensor& tensor, const at::Tensor& number);

}  // namespace anymps
