// How torch's functions that make tensors are entered by another way.
#include "device/backend/default_device.h"

#include "patches/patches.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/PyInterpreter.h>

namespace anymps {
namespace {

thread_local PyObject* chosen_device = nullptr;
PyObject* context_class = nullptr;  // torch.utils._device.DeviceContext
PyObject* device_name = nullptr;

// Whether a `with torch.device(...)` is open on this thread: a function mode, as are those that others put in place.
bool context_is_open() {
  using Modes = at::impl::PythonTorchFunctionTLS;
  for (int64_t i = 0; i < Modes::stack_len(); ++i) {
    PyObject* mode = Modes::get_stack_at(i)->ptr(getPyInterpreter());
    if (PyObject_TypeCheck(mode, reinterpret_cast<PyTypeObject*>(context_class))) {
      return true;
    }
  }
  return false;
}

// What CPython does for a function with METH_VARARGS | METH_KEYWORDS, with a device added to the keywords.
PyObject* call_factory(PyObject* function, PyObject* const* args, size_t flags, PyObject* names) {
  const Py_ssize_t given = PyVectorcall_NARGS(flags);
  PyObject* positional = PyTuple_New(given);
  if (positional == nullptr) {
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < given; ++i) {
    PyTuple_SET_ITEM(positional, i, Py_NewRef(args[i]));
  }
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  const bool here = chosen_device != nullptr && !context_is_open();
  PyObject* keywords = named > 0 || here ? PyDict_New() : nullptr;
  bool failed = keywords == nullptr && (named > 0 || here);
  for (Py_ssize_t i = 0; i < named && !failed; ++i) {
    failed = PyDict_SetItem(keywords, PyTuple_GET_ITEM(names, i), args[given + i]) != 0;
  }
  if (here && !failed) {
    PyObject* asked = PyDict_GetItem(keywords, device_name);
    if (asked == nullptr || asked == Py_None) {
      failed = PyDict_SetItem(keywords, device_name, chosen_device) != 0;
    }
  }
  PyObject* result = nullptr;
  if (!failed && Py_EnterRecursiveCall(" while calling a Python object") == 0) {
    void* entry = reinterpret_cast<void*>(PyCFunction_GET_FUNCTION(function));
    result = reinterpret_cast<PyCFunctionWithKeywords>(entry)(PyCFunction_GET_SELF(function), positional, keywords);
    Py_LeaveRecursiveCall();
  }
  Py_DECREF(positional);
  Py_XDECREF(keywords);
  return result;
}

}  // namespace

// A function of this kind has no vectorcall of its own (CPython 3.10 to 3.14, PyCMethod_New).
bool watch_factories(PyObject* functions, PyObject* context) {
  if (context_class != nullptr) {
    return true;
  }
  device_name = PyUnicode_InternFromString("device");
  PyObject* all = PySequence_Fast(functions, "anymps: expected functions");
  if (all == nullptr || device_name == nullptr) {
    Py_XDECREF(all);
    return false;
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(all);
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* function = PySequence_Fast_GET_ITEM(all, i);
    if (!PyCFunction_CheckExact(function) || patches::definition_of(function, METH_VARARGS | METH_KEYWORDS) == nullptr) {
      Py_DECREF(all);
      PyErr_Format(PyExc_TypeError, "anymps: %R is not called as torch's functions are", function);
      return false;
    }
  }
  context_class = Py_NewRef(context);
  for (Py_ssize_t i = 0; i < count; ++i) {
    patches::replace_entry(Py_NewRef(PySequence_Fast_GET_ITEM(all, i)), &call_factory);
  }
  Py_DECREF(all);
  return true;
}

void set_default_device(PyObject* device) {
  patches::keep(chosen_device, device);
}

}  // namespace anymps
