// CPU tensors that are copied to mps at the same line in step after step, with nothing changed in them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace anymps::repeats {

// After a copy of `source` to mps at line `site`: true once, in the third step that copies the very same values there.
bool is_third(const at::Tensor& source, uint32_t site);

void forget_all();

}  // namespace anymps::repeats
