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

c10::IValue list_value(PyObject* list) {
  PyObject* first = PyList_GET_SIZE(list) > 0 ? PyList_GET_ITEM(list, 0) : Py_None;
  if (THPVariable_Check(first)) {
    std::vector<at::Tensor> tensors;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      tensors.push_back(THPVariable_Unpack(PyList_GET_ITEM(list, i)));
    }
    return c10::IValue(std::move(tensors));
  }
  if (PyBool_Check(first)) {
    c10::List<bool> bits;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      bits.push_back(PyList_GET_ITEM(list, i) == Py_True);
    }
    return c10::IValue(std::move(bits));
  }
  if (PyFloat_Check(first)) {
    std::vector<double> numbers;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
      numbers.push_back(PyFloat_AsDouble(PyList_GET_ITEM(list, i)));
    }
    return c10::IValue(std::move(numbers));
  }
  c10::List<int64_t> numbers;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    numbers.push_back(PyLong_AsLongLong(PyList_GET_ITEM(list, i)));
  }
  return c10::IValue(std::move(numbers));
}

c10::IValue value_of(PyObject* object) {
  if (THPVariable_Check(object)) {
    return c10::IValue(THPVariable_Unpack(object));
  }
  if (PyList_Check(object)) {
    return list_value(object);
  }
  if (PyBool_Check(object)) {
    return c10::IValue(object == Py_True);
  }
  if (PyFloat_Check(object)) {
    return c10::IValue(PyFloat_AS_DOUBLE(object));
  }
  return PyLong_Check(object) ? c10::IValue(static_cast<int64_t>(PyLong_AsLongLong(object))) : c10::IValue();
}

// set_hazards(rows): anymps.rules.hazard_table()
PyObject* set_hazards_from_python(PyObject*, PyObject* rows) {
  return guarded([&]() -> PyObject* {
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
    Py_RETURN_NONE;
  });
}

// hazards_of(operator, arguments) -> ids; arguments are tensors, numbers, bools, None and lists of one kind of them.
PyObject* hazards_of_from_python(PyObject*, PyObject* args) {
  const char* name;
  PyObject* arguments;
  if (!PyArg_ParseTuple(args, "sO!", &name, &PyTuple_Type, &arguments)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    const Rule* rule = find_rule(name);
    if (rule == nullptr) {
      throw std::invalid_argument(std::string("anymps: no operator ") + name);
    }
    std::vector<c10::IValue> values;
    for_each(arguments, [&](PyObject* argument) { values.push_back(value_of(argument)); });
    PyObject* ids = PyList_New(0);
    for (const std::string& id : hazards_of(*rule, values)) {
      PyObject* text = PyUnicode_FromStringAndSize(id.data(), static_cast<Py_ssize_t>(id.size()));
      PyList_Append(ids, text);
      Py_DECREF(text);
    }
    return ids;
  });
}

}  // namespace

PyMethodDef hazard_methods[] = {
    {"set_hazards", set_hazards_from_python, METH_O, "Puts these known faults of MPS in force, and no others."},
    {"hazards_of", hazards_of_from_python, METH_VARARGS, "The known faults in force that a call would meet."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
