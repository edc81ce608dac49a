// Boxed values, looked at without a call of their own.
#include "feeds/observed_values.h"

#include "recorder/recorder.h"

#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/python_variable.h>

namespace anymps::observer {

c10::SmallVector<const c10::TensorImpl*, 6> pointers(c10::ArrayRef<at::Tensor> tensors, bool strided_only) {
  c10::SmallVector<const c10::TensorImpl*, 6> result;
  for (const at::Tensor& tensor : tensors) {
    if (!strided_only || tensor.layout() == c10::Layout::Strided) {
      result.push_back(tensor.unsafeGetTensorImpl());
    }
  }
  return result;
}

TensorSummary summarize(c10::ArrayRef<const c10::IValue> values) {
  TensorSummary seen;
  for (const c10::IValue& value : values) {
    if (value.isDevice()) {
      seen.on_mps = seen.on_mps || value.toDevice().is_mps();
      continue;
    }
    each_tensor(value, [&](const at::Tensor& tensor) {
      seen.on_mps = seen.on_mps || tensor.device().is_mps();
      seen.sparse = seen.sparse || tensor.layout() != c10::Layout::Strided;
      seen.keys = seen.keys | tensor.key_set();
    });
  }
  return seen;
}

bool has_wide_complex(c10::ArrayRef<const c10::IValue> values) {
  const auto is = [](const c10::IValue& value, c10::ScalarType type) {
    return value.isTensor() ? value.toTensor().defined() && value.toTensor().scalar_type() == type
                            : value.isInt() && value.toInt() == static_cast<int64_t>(type);
  };
  for (const c10::IValue& value : values) {
    if (is(value, c10::ScalarType::Double)) {
      return false;
    }
    if (is(value, c10::ScalarType::ComplexDouble)) {
      return true;
    }
  }
  return false;
}

// By way of Python: torch's wheels lack a header that those of torch.func include.
static at::Tensor unwrapped(at::Tensor tensor) {
  while (tensor.key_set().has(c10::DispatchKey::FuncTorchGradWrapper)) {
    GilGuard gil;
    PyObject* wrapper = THPVariable_Wrap(tensor);
    PyObject* functions = wrapper == nullptr ? nullptr : PyImport_ImportModule("torch._C._functorch");
    PyObject* plain = functions == nullptr ? nullptr : PyObject_CallMethod(functions, "get_unwrapped", "O", wrapper);
    const bool found = plain != nullptr && THPVariable_Check(plain);
    if (found) {
      tensor = THPVariable_Unpack(plain);
    }
    Py_XDECREF(plain);
    Py_XDECREF(functions);
    Py_XDECREF(wrapper);
    if (!found) {
      PyErr_Clear();
      break;
    }
  }
  return tensor;
}

c10::IValue unwrapped(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return unwrapped(value.toTensor());
  }
  if (!value.isTensorList()) {
    return value;
  }
  c10::List<at::Tensor> plain;
  for (const at::Tensor& tensor : value.toTensorVector()) {
    plain.push_back(tensor.defined() ? unwrapped(tensor) : tensor);
  }
  return plain;
}

// Who is asked before the backend.
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
