// Another way into torch.nn.Module.__call__.

#include "patches/patches.h"
#include "recorder/program/progress.h"
#include "recorder/program/python_bridge.h"

#include <unordered_map>

namespace anymps {
namespace {

constexpr uint32_t kSomeModule = 1;  // where only matters that there is one

std::unordered_map<PyObject*, uint32_t> numbers;  // of modules, by address; guarded by the GIL
PyObject* watched = nullptr;
vectorcallfunc former = nullptr;

uint32_t number_of(PyObject* module) {
  const auto found = numbers.find(module);
  if (found != numbers.end()) {
    return found->second;
  }
  if (callbacks().module == nullptr) {
    return 0;
  }
  const NoDynamo none;
  PyObject* answer = PyObject_CallOneArg(callbacks().module, module);
  if (answer == nullptr) {
    PyErr_WriteUnraisable(callbacks().module);
    return 0;
  }
  const auto number = static_cast<uint32_t>(PyLong_AsUnsignedLong(answer));
  Py_DECREF(answer);
  PyErr_Clear();
  numbers.emplace(module, number);
  return number;
}

PyObject* call(PyObject* function, PyObject* const* args, size_t flags, PyObject* names) {
  const bool on = recording() && PyVectorcall_NARGS(flags) > 0;
  if (on) {
    progress::enter_module(progress::is_sparse() ? kSomeModule : number_of(args[0]));
  }
  PyObject* result = former(function, args, flags, names);
  if (on) {
    progress::leave_module();
  }
  return result;
}

}  // namespace

// torch.compile compares the function with the one that it knows and translates its code
// (torch/_dynamo/variables/nn_module.py). Native code in its place would be "Unsupported", and a Mac compiles. `module(x)` enters by that way in all versions of Python; in 3.11 a call written as
// `Module.__call__(module, x)` does not.
bool watch_module_calls(PyObject* function) {
  if (!PyFunction_Check(function)) {
    PyErr_SetString(PyExc_TypeError, "anymps: torch.nn.Module.__call__ is no Python function");
    return false;
  }
  unwatch_module_calls();
  watched = Py_NewRef(function);
  former = patches::replace_entry(watched, &call);
  return true;
}

void unwatch_module_calls() {
  if (watched != nullptr) {
    patches::replace_entry(watched, former);
    Py_CLEAR(watched);
  }
}

void forget_module_number(PyObject* module) {
  numbers.erase(module);
}

void forget_module_numbers() {
  numbers.clear();
}

}  // namespace anymps
