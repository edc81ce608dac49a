// Who is asked before the backend.
#include "feeds/observed_reach.h"

#include <c10/core/impl/LocalDispatchKeySet.h>

namespace anymps::observer {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Whoever has one of these keys is asked before the backend, and makes calls of its own that come by here again.
const DispatchKeySet kAskedBefore({
    DispatchKey::Python, DispatchKey::PythonDispatcher, DispatchKey::PythonTLSSnapshot, DispatchKey::PreDispatch,
    DispatchKey::Functionalize, DispatchKey::FuncTorchDynamicLayerFrontMode, DispatchKey::FuncTorchDynamicLayerBackMode,
    DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchBatchedDecomposition, DispatchKey::FuncTorchVmapMode,
    DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched, DispatchKey::VmapMode,
});

Reach interception(const Operator& op, DispatchKeySet of_tensors) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet keys = (of_tensors | local.included_) - local.excluded_;
  const DispatchKeySet asked = keys & kAskedBefore;
  if (asked.empty() && !(op.autocast && keys.has(DispatchKey::AutocastMPS))) {
    return Reach::Backend;
  }
  // Inductor folds constants by torch's dispatcher in Python, which picks the kernel and calls it past this one.
  const bool picked = asked == DispatchKeySet(DispatchKey::PythonDispatcher);
  const bool transformed = local.included_.has(DispatchKey::FuncTorchDynamicLayerFrontMode);
  return picked || transformed ? Reach::MayCallKernel : Reach::Redispatches;
}

// A copy of which nothing moves is no call of the device.
bool moves_nothing(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (op.kind != Kind::Copy || values.size() < 2 || !values[0].isTensor() || !values[1].isTensor()) {
    return op.kind == Kind::Copy;
  }
  const at::Tensor &first = values[0].toTensor(), &other = values[1].toTensor();
  return first.is_same(other) || first.numel() == 0 || other.numel() == 0 || first.is_meta() || other.is_meta();
}

}  // namespace

Reach reach_of(const Operator& op, c10::ArrayRef<const c10::IValue> values, const TensorSummary& seen) {
  if (!seen.on_mps || moves_nothing(op, values)) {
    return Reach::Nothing;
  }
  if (op.composite && !op.is_listed(seen.sparse)) {
    return Reach::Nothing;  // the operators that it is made of count
  }
  return interception(op, seen.keys);
}

}  // namespace anymps::observer
