// What Python is told of, and by whom.
#include "recorder/program/python_bridge.h"

#include "recorder/lines/autograd.h"
#include "recorder/lines/call_sites.h"
#include "recorder/tape/marks.h"
#include "recorder/program/progress.h"
#include "recorder/copies/roundtrip.h"
#include "recorder/copies/overwritten.h"
#include "recorder/lines/places.h"

#include <unordered_set>

// From torch/csrc/autograd/python_variable.h, which takes ten seconds to compile.
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace anymps {
namespace {

std::unordered_set<uint32_t> lines_told;  // of copies to mps

}  // namespace

Callbacks& callbacks() {
  static Callbacks the_callbacks;
  return the_callbacks;
}

namespace {

// Sets what translates the thread's frames, as torch/_dynamo/eval_frame.py does; answers what did before.
PyObject* set_eval_frame(PyObject* callback) {
  static PyObject* set = [] {
    PyObject* module = PyImport_ImportModule("torch._C._dynamo.eval_frame");
    PyObject* found = module != nullptr ? PyObject_GetAttrString(module, "set_eval_frame") : nullptr;
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
  }();
  PyObject* former = set != nullptr ? PyObject_CallOneArg(set, callback) : nullptr;
  PyErr_Clear();
  return former;
}

}  // namespace

NoDynamo::NoDynamo() : former_(set_eval_frame(Py_None)) {}

NoDynamo::~NoDynamo() {
  if (former_ == nullptr) {
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (former_ != Py_None) {
    Py_XDECREF(set_eval_frame(former_));
  }
  Py_DECREF(former_);
  PyErr_Restore(type, value, traceback);
}

PyObject* to_python(const c10::IValue& value, bool as_given) {
  if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
    return Py_NewRef(Py_None);
  }
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    const bool is_number = !as_given && tensor.unsafeGetTensorImpl()->is_wrapped_number() && tensor.device().is_cpu();
    return is_number ? to_python(c10::IValue(tensor.item())) : THPVariable_Wrap(tensor);
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
  if (value.isString()) {
    return PyUnicode_FromString(value.toStringRef().c_str());
  }
  if (value.isSymInt() && !as_given) {
    return PyLong_FromLongLong(value.toSymInt().guard_int(__FILE__, __LINE__));
  }
  if (value.isDevice() && !as_given) {
    return PyUnicode_FromString(value.toDevice().str().c_str());
  }
  if (!value.isList()) {
    return nullptr;
  }
  PyObject* list = PyList_New(0);
  for (const c10::IValue& item : value.toList()) {
    PyObject* made = list == nullptr ? nullptr : to_python(item, as_given);
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

namespace {

// Calls a callback with the exception of the calling thread put aside. An error inside is printed, never raised.
template <class Call>
void call_python(PyObject* callback, const Call& call) {
  thread_local bool busy = false;
  if (busy || callback == nullptr) {
    return;
  }
  busy = true;
  GilGuard gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  {
    const NoDynamo none;
    Py_XDECREF(call());
  }
  if (PyErr_Occurred()) {
    PyErr_WriteUnraisable(callback);
  }
  PyErr_Restore(type, value, traceback);
  busy = false;
}

}  // namespace

void forget_told() {
  lines_told.clear();
  repeats::forget_all();
}

uint32_t note_refusal(Refusal kind, const Rule& rule, ErrorClass error, const std::string& message, const at::Tensor& culprit) {
  if (!recording()) {
    return 0;
  }
  const uint32_t number = tape::note_refusal(rule, kind == Refusal::Missing ? Fate::Missing : Fate::Refused);
  PyObject* callback = callbacks().refusal;
  call_python(callback, [&]() -> PyObject* {
    PyObject* tensor = culprit.defined() ? THPVariable_Wrap(culprit) : Py_NewRef(Py_None);
    if (tensor == nullptr) {
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(
        callback, "IssssO", number, kRefusalWords[static_cast<size_t>(kind)], rule.name.c_str(), kErrorNames[static_cast<size_t>(error)], message.c_str(), tensor);
    Py_DECREF(tensor);
    return result;
  });
  return number;
}

void note_copy_to_mps(const at::Tensor& source) {
  if (!recording() || muted() || progress::is_sparse() || callbacks().copied == nullptr || in_backward()) {
    return;
  }
  const uint32_t site = current_site();
  const bool again = site != 0 && repeats::is_third(source, site);
  GilGuard gil;
  if (site == 0 || !(lines_told.insert(site).second || again)) {
    return;
  }
  call_python(callbacks().copied, [&]() -> PyObject* {
    PyObject* tensor = THPVariable_Wrap(source);
    if (tensor == nullptr) {
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(callbacks().copied, "OIO", tensor, site, again ? Py_True : Py_False);
    Py_DECREF(tensor);
    return result;
  });
}

void note_surfaced(uint32_t number) {
  if (recording() && number != 0) {
    call_python(callbacks().surfaced, [&] { return PyObject_CallFunction(callbacks().surfaced, "I", number); });
  }
}

static std::string mark_of(const HazardRow& row, const std::string& call) {
  return "anymps::hazard." + row.id + " " + call;
}

void note_fault(const HazardRow& row, const std::string& call) {
  tape::note_hazard(mark_rule(mark_of(row, call)));
  PyObject* callback = callbacks().fault;
  if (observed() && callback != nullptr) {  // for who wants to save what there is before the process ends
    const uint32_t site = current_place();
    call_python(callback, [&] { return PyObject_CallFunction(callback, "sI", row.id.c_str(), site); });
  }
}

const HazardRow* note_faults(const Rule& rule, c10::ArrayRef<Operand> operands) {
  const HazardRow* refused = nullptr;
  each_hazard(rule, operands, [&](const HazardRow& row) {
    if (refused != nullptr) {
      return;
    }
    if (!shows_later(row)) {
      note_fault(row, rule.name);
      refused = row.text.empty() ? nullptr : &row;
    } else if (recording() && !muted()) {
      overwritten::remember(operands[1].tensor, mark_of(row, rule.name), current_site());
    }
  });
  return refused;
}

}  // namespace anymps
