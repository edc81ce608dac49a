// By type, without torch's own conversion, whose header takes long to compile.
#include "feeds/python_values.h"

#include <ATen/core/Tensor.h>

#include <torch/csrc/autograd/python_variable.h>

namespace anymps::observer {
namespace {

PyObject* of_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return Py_NewRef(Py_None);
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.device().is_cpu()) {
    const c10::Scalar number = tensor.item();
    return to_python(c10::IValue(number));
  }
  return THPVariable_Wrap(tensor);
}

}  // namespace

PyObject* to_python(const c10::IValue& value) {
  if (value.isNone()) {
    return Py_NewRef(Py_None);
  }
  if (value.isTensor()) {
    return of_tensor(value.toTensor());
  }
  if (value.isBool()) {
    return PyBool_FromLong(value.toBool());
  }
  if (value.isInt()) {
    return PyLong_FromLongLong(value.toInt());
  }
  if (value.isDouble()) {
    return PyFloat_FromDouble(value.toDouble());
  }
  if (value.isComplexDouble()) {
    const c10::complex<double> number = value.toComplexDouble();
    return PyComplex_FromDoubles(number.real(), number.imag());
  }
  if (value.isSymInt()) {
    return PyLong_FromLongLong(value.toSymInt().guard_int(__FILE__, __LINE__));
  }
  if (value.isString()) {
    return PyUnicode_FromString(value.toStringRef().c_str());
  }
  if (value.isDevice()) {
    return PyUnicode_FromString(value.toDevice().str().c_str());
  }
  if (!value.isList()) {
    return nullptr;
  }
  PyObject* list = PyList_New(0);
  for (const c10::IValue& item : value.toList()) {
    PyObject* made = list == nullptr ? nullptr : to_python(item);
    if (made == nullptr || PyList_Append(list, made) != 0) {
      Py_XDECREF(made);
      Py_XDECREF(list);
      PyErr_Clear();
      return nullptr;
    }
    Py_DECREF(made);
  }
  return list;
}

}  // namespace anymps::observer
