// Boxed values, looked at without a call of their own.
#include "feeds/observed_values.h"

#include "recorder/recorder.h"

#include <torch/csrc/autograd/python_variable.h>

namespace anymps::observer {

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

}  // namespace anymps::observer
