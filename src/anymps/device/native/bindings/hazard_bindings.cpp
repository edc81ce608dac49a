// Python's way to the hazards: putting them in force, and asking which ones a call would meet.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "rules/rules.h"

#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>

namespace anymps {
namespace {

ErrorClass error_class(const std::string& name) {
  if (name == "RuntimeError") {
    return ErrorClass::Runtime;
  }
  if (name == "NotImplementedError") {
    return ErrorClass::NotImplemented;
  }
  throw std::invalid_argument("anymps: a hazard cannot raise " + name);
}

template <class List, class Read>
c10::IValue list_value(PyObject* list, Read&& read) {
  List values;
  for_each(list, [&](PyObject* item) { values.push_back(read(item)); });
  return c10::IValue(std::move(values));
}

c10::IValue value_of(PyObject* object) {
  if (THPVariable_Check(object)) {
    return c10::IValue(THPVariable_Unpack(object));
  }
  if (PyList_Check(object)) {
    PyObject* first = PyList_GET_SIZE(object) > 0 ? PyList_GET_ITEM(object, 0) : Py_None;
    if (THPVariable_Check(first)) {
      return list_value<std::vector<at::Tensor>>(object, [](PyObject* item) { return THPVariable_Unpack(item); });
    }
    if (PyBool_Check(first)) {
      return list_value<c10::List<bool>>(object, [](PyObject* item) { return item == Py_True; });
    }
    if (PyFloat_Check(first)) {
      return list_value<std::vector<double>>(object, &PyFloat_AsDouble);
    }
    return list_value<c10::List<int64_t>>(object, &PyLong_AsLongLong);
  }
  if (PyBool_Check(object)) {
    return c10::IValue(object == Py_True);
  }
  if (PyFloat_Check(object)) {
    return c10::IValue(PyFloat_AS_DOUBLE(object));
  }
  return PyLong_Check(object) ? c10::IValue(static_cast<int64_t>(PyLong_AsLongLong(object))) : c10::IValue();
}

// `rows`: anymps.rules.hazard_table()
void set_hazards_from_python(PyObject* rows) {
  std::vector<HazardRow> table;
  for_each(rows, [&](PyObject* row) {
    const char *id, *check, *error, *text;
    int family;
    long long low, high;
    PyObject* operators;
    unpack(row, "ssLLOiss", &id, &check, &low, &high, &operators, &family, &error, &text);
    HazardRow& made = table.emplace_back(HazardRow{id, check, low, high, {}, family, error_class(error), text});
    for_each(operators, [&](PyObject* name) { made.operators.push_back(to_string(name)); });
  });
  set_hazards(std::move(table));
}

// The ids; arguments are tensors, numbers, bools, None and lists of one kind of them.
PyObject* hazards_of_call(const std::string& name, PyObject* arguments) {
  const Rule* rule = find_rule(name);
  if (rule == nullptr) {
    throw std::invalid_argument("anymps: no operator " + name);
  }
  std::vector<c10::IValue> values;
  for_each(arguments, [&](PyObject* argument) { values.push_back(value_of(argument)); });
  return list_of(hazards_of(*rule, values), [](const std::string& id) { return to_object(id); });
}

}  // namespace

PyMethodDef hazard_methods[] = {
    method<&set_hazards_from_python>("set_hazards", "Puts these known faults of MPS in force, and no others."),
    method<&hazards_of_call>("hazards_of", "The known faults in force that a call would meet."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
