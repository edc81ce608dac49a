// Whether a call reaches the backend as it is, or goes to autocast, a mode or a transform first.
#pragma once

#include "feeds/observed_operators.h"
#include "feeds/observed_values.h"

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace anymps::observer {

enum class Reach : uint8_t {
  Nothing,        // no call of the device: a view, a copy of nothing, or one that is made of other operators
  Redispatches,   // a mode or key takes it and makes it again, so that it is seen then
  MayCallKernel,  // one takes it that may call the kernel itself, where nobody sees it
  Backend,
};

Reach reach_of(const Operator& op, c10::ArrayRef<const c10::IValue> values, const TensorSummary& seen);

}  // namespace anymps::observer
