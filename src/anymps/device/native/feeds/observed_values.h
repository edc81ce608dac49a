// The values of a call as an observer gets them: the tensors among them, and whether they are on mps.
#pragma once

#include "feeds/observed_operators.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>

namespace anymps::observer {

template <class Each>
void each_tensor(const c10::IValue& value, const Each& each) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      each(value.toTensor());
    }
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) {
        each(item.toTensor());
      }
    }
  }
}

// The tensors as a span takes them.
c10::SmallVector<const c10::TensorImpl*, 6> pointers(c10::ArrayRef<at::Tensor> tensors, bool strided_only = false);

struct TensorSummary {
  bool on_mps = false, sparse = false;
  c10::DispatchKeySet keys;
};
TensorSummary summarize(c10::ArrayRef<const c10::IValue> values);

// Whether one of the values, a tensor or a dtype, is complex128 and none before it float64.
bool has_wide_complex(c10::ArrayRef<const c10::IValue> values);

// Without the wrappers in which torch.func has its tensors.
c10::IValue unwrapped(const c10::IValue& value);

// Whether a call reaches the backend as it is, or goes to autocast, a mode or a transform first.
enum class Reach : uint8_t {
  Nothing,        // no call of the device: a view, a copy of nothing, or one that is made of other operators
  Redispatches,   // a mode or key takes it and makes it again, so that it is seen then
  MayCallKernel,  // one takes it that may call the kernel itself, where nobody sees it
  Backend,
};

Reach reach_of(const Operator& op, c10::ArrayRef<const c10::IValue> values, const TensorSummary& seen);

}  // namespace anymps::observer
