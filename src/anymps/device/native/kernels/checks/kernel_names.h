// The names that operators ask Metal kernels for, and the dtypes that no kernel of an operator has.
#pragma once

#include "rules/rules.h"

#include <ATen/core/ivalue.h>

namespace anymps {

// Raises what MPS says to the dtypes of a call: to that of its first tensor (anymps/rules/_dtypes.py), or where no kernel has them
// (anymps/rules/_metal_dtypes.py). A Mac looks for the kernel last: what the operator says of sizes comes before. The arguments
// are the caller's.
void check_kernels(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

}  // namespace anymps
