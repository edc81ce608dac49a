// How torch's functions and classes come by other names of devices than they were given, or by one that they were not given.
#include "device/backend/entered_functions.h"

#include "patches/patches.h"

#include <ATen/PythonTorchFunctionTLS.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace anymps {
namespace {

constexpr size_t kMost = 160;

struct Entered {
  PyMethodDef* method;
  PyCFunctionWithKeywords original;
};

struct Constructor {
  PyTypeObject* type;
  newfunc original;
};

std::array<Entered, kMost> entered;
size_t entered_count = 0;
std::vector<Constructor> constructors;
PyObject* answer = nullptr;

bool names_cuda(PyObject* value) {
  if (!PyUnicode_Check(value)) {
    return false;
  }
  Py_ssize_t length = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value, &length);
  if (text == nullptr) {
    PyErr_Clear();  // a lone surrogate names nothing
    return false;
  }
  return length >= 4 && std::memcmp(text, "cuda", 4) == 0 && (length == 4 || text[4] == ':');
}

// What a call is given, with other names in it where it named CUDA.
class Arguments {
 public:
  Arguments(PyObject* args, PyObject* kwargs) : args_(Py_XNewRef(args)), kwargs_(Py_XNewRef(kwargs)) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() {
    Py_XDECREF(args_);
    Py_XDECREF(kwargs_);
  }

  // False with a Python error set.
  bool rename(const char* function) {
    for (Py_ssize_t i = 0; args_ != nullptr && i < PyTuple_GET_SIZE(args_); ++i) {
      if (names_cuda(PyTuple_GET_ITEM(args_, i)) && !replace_positional(function, i)) {
        return false;
      }
    }
    PyObject *key, *value;
    Py_ssize_t place = 0;
    std::vector<PyObject*> keys;
    while (kwargs_ != nullptr && PyDict_Next(kwargs_, &place, &key, &value)) {
      if (names_cuda(value)) {
        keys.push_back(key);
      }
    }
    return keys.empty() || replace_named(function, keys);
  }

  PyObject* args() const {
    return args_;
  }
  PyObject* kwargs() const {
    return kwargs_;
  }
  bool renamed() const {
    return renamed_;
  }

 private:
  static PyObject* ask(const char* function, PyObject* name) {
    return PyObject_CallFunction(answer, "sO", function, name);
  }

  bool replace_positional(const char* function, Py_ssize_t index) {
    PyObject* other = ask(function, PyTuple_GET_ITEM(args_, index));
    if (other == nullptr) {
      return false;
    }
    PyObject* copy = PyTuple_New(PyTuple_GET_SIZE(args_));
    for (Py_ssize_t i = 0; copy != nullptr && i < PyTuple_GET_SIZE(args_); ++i) {
      PyTuple_SET_ITEM(copy, i, i == index ? Py_NewRef(other) : Py_NewRef(PyTuple_GET_ITEM(args_, i)));
    }
    Py_DECREF(other);
    if (copy == nullptr) {
      return false;
    }
    Py_SETREF(args_, copy);
    return renamed_ = true;
  }

  bool replace_named(const char* function, const std::vector<PyObject*>& keys) {
    PyObject* copy = PyDict_Copy(kwargs_);
    if (copy == nullptr) {
      return false;
    }
    for (PyObject* key : keys) {
      PyObject* other = ask(function, PyDict_GetItem(kwargs_, key));
      const bool failed = other == nullptr || PyDict_SetItem(copy, key, other) != 0;
      Py_XDECREF(other);
      if (failed) {
        Py_DECREF(copy);
        return false;
      }
    }
    Py_SETREF(kwargs_, copy);
    return renamed_ = true;
  }

  PyObject* args_;
  PyObject* kwargs_;
  bool renamed_ = false;
};

PyObject* call_entered(size_t number, PyObject* self, PyObject* args, PyObject* kwargs) {
  const Entered& function = entered[number];
  if (answer == nullptr) {
    return function.original(self, args, kwargs);
  }
  Arguments given(args, kwargs);
  return given.rename(function.method->ml_name) ? function.original(self, given.args(), given.kwargs()) : nullptr;
}

template <size_t number>
PyObject* enter(PyObject* self, PyObject* args, PyObject* kwargs) {
  return call_entered(number, self, args, kwargs);
}

template <size_t... numbers>
constexpr std::array<PyCFunctionWithKeywords, sizeof...(numbers)> all_entries(std::index_sequence<numbers...>) {
  return {&enter<numbers>...};
}

constexpr auto kEntries = all_entries(std::make_index_sequence<kMost>());

PyObject* make_named(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  const Constructor* known = nullptr;
  for (PyTypeObject* base = type; base != nullptr && known == nullptr; base = base->tp_base) {
    for (const Constructor& constructor : constructors) {
      known = constructor.type == base ? &constructor : known;
    }
  }
  Arguments given(args, kwargs);
  const char* name = std::strrchr(known->type->tp_name, '.');
  name = name != nullptr ? name + 1 : known->type->tp_name;
  if (answer != nullptr && !given.rename(name)) {
    return nullptr;
  }
  PyObject* made = known->original(type, given.args(), given.kwargs());
  // `torch.device("cuda", 1)`: its index stands by itself.
  if (made != nullptr && given.renamed() && THPDevice_Check(made)) {
    const auto index = reinterpret_cast<THPDevice*>(made)->device.index();
    if (index > 0) {
      PyObject* other = PyObject_CallFunction(answer, "ss", name, ("cuda:" + std::to_string(index)).c_str());
      if (other == nullptr) {
        Py_CLEAR(made);
      }
      Py_XDECREF(other);
    }
  }
  return made;
}

bool refuse_function(PyObject* function) {
  PyErr_Format(PyExc_TypeError, "anymps: %R is not called as torch's functions are", function);
  return false;
}

// The definition of a function; else null, with a Python error set.
PyMethodDef* called_as_torchs(PyObject* function) {
  PyMethodDef* method = patches::definition_of(function, METH_VARARGS | METH_KEYWORDS);
  if (method == nullptr) {
    refuse_function(function);
  }
  return method;
}

// CPython hashes a built-in function by its definition's pointer, so sets that hold one must be made anew (_install.py).
bool enter_function(PyObject* function) {
  PyMethodDef* method = called_as_torchs(function);
  if (method == nullptr) {
    return false;
  }
  for (size_t i = 0; i < entered_count; ++i) {
    if (entered[i].method == method) {
      return true;
    }
  }
  if (entered_count == kMost) {
    PyErr_SetString(PyExc_RuntimeError, "anymps: more functions take a device than this core has entries for");
    return false;
  }
  entered[entered_count] = {method, patches::replace_method(method, kEntries[entered_count])};
  ++entered_count;
  return true;
}

bool enter_constructor(PyObject* object) {
  if (!PyType_Check(object)) {
    PyErr_Format(PyExc_TypeError, "anymps: %R is no class", object);
    return false;
  }
  PyTypeObject* type = reinterpret_cast<PyTypeObject*>(object);
  if (type->tp_new != &make_named) {
    constructors.push_back({type, type->tp_new});
    type->tp_new = &make_named;
    PyType_Modified(type);
  }
  return true;
}

bool each(PyObject* objects, bool (*body)(PyObject*)) {
  PyObject* all = PySequence_Fast(objects, "anymps: expected a sequence");
  bool good = all != nullptr;
  for (Py_ssize_t i = 0; good && i < PySequence_Fast_GET_SIZE(all); ++i) {
    good = body(PySequence_Fast_GET_ITEM(all, i));
  }
  Py_XDECREF(all);
  return good;
}

}  // namespace

bool rename_cuda(PyObject* new_answer, PyObject* functions, PyObject* types) {
  if (!each(functions, enter_function) || !each(types, enter_constructor)) {
    return false;
  }
  patches::keep(answer, new_answer);
  return true;
}

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
  if (device_name == nullptr || !each(functions, [](PyObject* function) {
        return PyCFunction_CheckExact(function) ? called_as_torchs(function) != nullptr : refuse_function(function);
      })) {
    return false;
  }
  context_class = Py_NewRef(context);
  return each(functions, [](PyObject* function) {
    patches::replace_entry(Py_NewRef(function), &call_factory);
    return true;
  });
}

void set_default_device(PyObject* device) {
  patches::keep(chosen_device, device);
}

}  // namespace anymps
