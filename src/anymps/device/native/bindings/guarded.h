// What bindings share: exceptions of C++ become exceptions of Python, and Python's values are read by type.
#pragma once

#include <Python.h>

#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>

namespace anymps {

// Python has raised; its exception is set.
struct PythonRaised {};

// Runs `body`, turning C++ exceptions into Python ones.
template <class Body>
PyObject* guarded(Body&& body) {
  try {
    return body();
  } catch (const PythonRaised&) {
    // said already
  } catch (const c10::Error& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

inline std::string to_string(PyObject* object) {
  const char* text = PyUnicode_AsUTF8(object);
  if (text == nullptr) {
    throw PythonRaised();
  }
  return text;
}

inline uint64_t to_number(PyObject* object) {
  const unsigned long long number = PyLong_AsUnsignedLongLong(object);
  if (PyErr_Occurred() != nullptr) {
    throw PythonRaised();
  }
  return number;
}

// The value of a dictionary's field; its name, in an error.
inline PyObject* field(PyObject* table, const char* name) {
  PyObject* value = PyDict_Check(table) ? PyDict_GetItemString(table, name) : nullptr;
  if (value == nullptr) {
    throw std::invalid_argument(std::string("anymps: the native core was told no ") + name);
  }
  return value;
}

// The values of a tuple, as PyArg_ParseTuple reads them.
template <class... Slots>
void unpack(PyObject* tuple, const char* format, Slots*... slots) {
  if (!PyTuple_Check(tuple)) {
    throw std::invalid_argument("anymps: expected a tuple");
  }
  if (!PyArg_ParseTuple(tuple, format, slots...)) {
    throw PythonRaised();
  }
}

// body(item) for each item of a list or tuple.
template <class Body>
void for_each(PyObject* sequence, Body&& body) {
  struct Release {
    void operator()(PyObject* object) const {
      Py_DECREF(object);
    }
  };
  const std::unique_ptr<PyObject, Release> items(PySequence_Fast(sequence, "anymps: expected a list or a tuple"));
  if (items == nullptr) {
    throw PythonRaised();
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i) {
    body(PySequence_Fast_GET_ITEM(items.get(), i));
  }
}

// body(key, value) for each item of a dictionary whose keys are texts.
template <class Body>
void for_each_item(PyObject* table, Body&& body) {
  if (!PyDict_Check(table)) {
    throw std::invalid_argument("anymps: expected a dictionary");
  }
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(table, &at, &key, &value);) {
    body(to_string(key), value);
  }
}

}  // namespace anymps
