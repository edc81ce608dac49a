// The names that operators ask Metal kernels for, and the dtypes that no kernel of an operator has.
#pragma once

#include "rules/rules.h"

#include <ATen/core/ivalue.h>

namespace anymps {

// Raises what MPS says where no kernel has the dtypes of a call (anymps/rules/_metal_dtypes.py). The arguments are the caller's.
void check_kernels(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

}  // namespace anymps
