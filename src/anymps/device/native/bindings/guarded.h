// What bindings share: functions of C++ as functions of Python, with their exceptions, arguments and results.
#pragma once

#include <Python.h>

#include <c10/util/Exception.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

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

// Of a function that says whether it is done: else it has set Python's exception.
inline void raised_unless(bool done) {
  if (!done) {
    throw PythonRaised();
  }
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
  raised_unless(PyArg_ParseTuple(tuple, format, slots...) != 0);
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

// A list of make(item) for each item.
template <class Items, class Make>
PyObject* list_of(const Items& items, Make&& make) {
  PyObject* list = PyList_New(0);
  for (const auto& item : items) {
    PyObject* made = make(item);
    const bool failed = made == nullptr || PyList_Append(list, made) != 0;
    Py_XDECREF(made);
    if (failed) {
      Py_DECREF(list);
      throw PythonRaised();
    }
  }
  return list;
}

inline PyObject* to_object(PyObject* object) {
  return object;
}
inline PyObject* to_object(const std::string& text) {
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}
template <class T>
std::enable_if_t<std::is_integral_v<T>, PyObject*> to_object(T number) {
  if constexpr (std::is_same_v<T, bool>) {
    return PyBool_FromLong(number);
  } else if constexpr (std::is_signed_v<T>) {
    return PyLong_FromLongLong(number);
  } else {
    return PyLong_FromUnsignedLongLong(number);
  }
}

// An argument, as a parameter of this type; one that is missing (null) is an empty optional.
template <class T>
struct FromPython {
  static T read(PyObject* value) {
    if (value == nullptr) {
      throw std::invalid_argument("anymps: an argument is missing");
    }
    if constexpr (std::is_same_v<T, PyObject*>) {
      return value;
    } else if constexpr (std::is_same_v<T, std::string>) {
      return to_string(value);
    } else if constexpr (std::is_same_v<T, bool>) {
      return PyObject_IsTrue(value) == 1;
    } else if constexpr (std::is_signed_v<T>) {
      const long long number = PyLong_AsLongLong(value);
      if (number == -1 && PyErr_Occurred() != nullptr) {
        throw PythonRaised();
      }
      return static_cast<T>(number);
    } else {
      return static_cast<T>(to_number(value));
    }
  }
};
template <class T>
struct FromPython<std::optional<T>> {
  static std::optional<T> read(PyObject* value) {
    return value == nullptr ? std::nullopt : std::optional<T>(FromPython<T>::read(value));
  }
};

// `function` as Python calls it: with no argument, with one, or with a tuple of them.
template <auto function>
struct Method {
  template <class R, class... Args>
  static constexpr int flags(R (*)(Args...)) {
    return sizeof...(Args) == 0 ? METH_NOARGS : sizeof...(Args) == 1 ? METH_O : METH_VARARGS;
  }
  static PyObject* enter(PyObject*, PyObject* given) {
    return guarded([&] { return call(function, given); });
  }

 private:
  template <class R, class... Args>
  static PyObject* call(R (*parameters)(Args...), PyObject* given) {
    return call(parameters, given, std::index_sequence_for<Args...>());
  }
  template <class R, class... Args, size_t... Places>
  static PyObject* call(R (*)(Args...), PyObject* given, std::index_sequence<Places...>) {
    const auto argument = [&](Py_ssize_t place) -> PyObject* {
      if constexpr (sizeof...(Args) == 1) {
        return given;
      } else {
        return place < PyTuple_GET_SIZE(given) ? PyTuple_GET_ITEM(given, place) : nullptr;
      }
    };
    (void)argument;
    if constexpr (std::is_void_v<R>) {
      function(FromPython<std::decay_t<Args>>::read(argument(Places))...);
      Py_RETURN_NONE;
    } else {
      return to_object(function(FromPython<std::decay_t<Args>>::read(argument(Places))...));
    }
  }
};

// A row of a table of functions.
template <auto function>
PyMethodDef method(const char* name, const char* said) {
  return {name, &Method<function>::enter, Method<function>::flags(function), said};
}

// The parts of the Python module `_native`: a table of functions each, in the file of its name.
extern PyMethodDef rule_methods[];
extern PyMethodDef device_methods[];
extern PyMethodDef tape_methods[];
extern PyMethodDef observer_methods[];
extern PyMethodDef shader_methods[];

}  // namespace anymps
