// The tables of rules as Python gives them: one small function reads each table, and one puts all of them in force; the known
// faults in force, and which ones a call would meet.
#include "bindings/guarded.h"

#include "rules/rules.h"
#include "recorder/recorder.h"

#include <torch/csrc/autograd/python_variable.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace anymps {
namespace {

struct RuleTables {
  std::vector<std::string> families;
  std::vector<std::string> internal_folders;
  std::vector<RuleRow> operators;
  DtypeRows dtypes;
  KernelNames kernels;
  Checks checks;
  Texts texts;
};

std::vector<std::string> read_names(PyObject* list) {
  std::vector<std::string> names;
  for_each(list, [&](PyObject* name) { names.push_back(to_string(name)); });
  return names;
}

// (operator, Fate, Family, Trait, Wait, When): anymps.rules.core_table()
std::vector<RuleRow> read_operators(PyObject* rows) {
  std::vector<RuleRow> table;
  for_each(rows, [&](PyObject* row) {
    const char *name, *when;
    int fate, family, wait;
    unsigned traits;
    unpack(row, "siiIis", &name, &fate, &family, &traits, &wait, &when);
    table.push_back({name, fate, family, traits, wait, when});
  });
  return table;
}

// (operator, ((ScalarType, error class, text), ...), bits of widened dtypes, how wide): anymps.rules.dtype_table()
DtypeRows read_dtypes(PyObject* rows) {
  DtypeRows table;
  for_each(rows, [&](PyObject* row) {
    const char* name;
    PyObject* refused;
    unsigned long long widened;
    int wide;
    unpack(row, "sOKi", &name, &refused, &widened, &wide);
    DtypeRow& known = table[name];
    known.widened = widened;
    known.wide = wide;
    for_each(refused, [&](PyObject* refusal) {
      int type, error;
      const char* said;
      unpack(refusal, "iis", &type, &error, &said);
      known.refused[type] = {static_cast<uint8_t>(error), said};
    });
  });
  return table;
}

// (operator, Form, bits of dtypes, name, name for two dtypes): anymps.rules.kernel_table()
KernelNames read_kernels(PyObject* rows) {
  KernelNames table;
  for_each(rows, [&](PyObject* row) {
    const char *operator_name, *name, *cast;
    int form;
    unsigned long long missing;
    unpack(row, "siKss", &operator_name, &form, &missing, &name, &cast);
    table[operator_name] = {missing, static_cast<KernelName::Form>(form), name, cast};
  });
  return table;
}

// {operator: (layout, text, text of strided tensors)}: anymps.rules.device_checks()
void read_index_checks(PyObject* table, Checks& into) {
  for_each_item(table, [&](std::string name, PyObject* row) {
    const char *layout, *said, *strided;
    unpack(row, "sss", &layout, &said, &strided);
    into.indices[std::move(name)] = {layout, said, strided};
  });
}

// {operator: (name of the kernel, floating alone, argument, its values)}: anymps.rules.alerts()
void read_alerts(PyObject* table, Checks& into) {
  for_each_item(table, [&](std::string name, PyObject* row) {
    const char *kernel, *argument;
    int floating;
    PyObject* values;
    unpack(row, "spsO", &kernel, &floating, &argument, &values);
    into.alerts[std::move(name)] = {kernel, floating != 0, argument, read_names(values)};
  });
}

// {name: text}
void read_words(PyObject* words, Texts& into) {
  const std::pair<const char*, std::string*> places[] = {
      {"float64", &into.float64},
      {"missing", &into.missing},
      {"distributed", &into.distributed},
      {"fallback_warning", &into.fallback_warning},
      {"view_fallback_warning", &into.view_fallback_warning},
      {"not_checked", &into.not_checked},
  };
  for (const auto& [name, place] : places) {
    *place = to_string(field(words, name));
  }
}

// (bits of the dtypes that a copy casts between, error class, text)
void read_casts(PyObject* casts, Texts& into) {
  unsigned long long castable;
  int error;
  const char* said;
  unpack(casts, "Kis", &castable, &error, &said);
  into.castable = castable;
  into.refused_cast = {static_cast<uint8_t>(error), said};
}

// {operator: {argument: text}}
void read_same_gpu(PyObject* table, Texts& into) {
  for_each_item(table, [&](const std::string& op, PyObject* arguments) {
    for_each_item(arguments, [&](const std::string& argument, PyObject* said) { into.same_gpu[op][argument] = to_string(said); });
  });
}

// {name: (error class, text)}: anymps.rules.operator_limits()
void read_limits(PyObject* table, Texts& into) {
  for_each_item(table, [&](std::string name, PyObject* limit) {
    int error;
    const char* said;
    unpack(limit, "is", &error, &said);
    into.limits[std::move(name)] = {static_cast<uint8_t>(error), said};
  });
}

RuleTables read(PyObject* tables) {
  RuleTables found;
  found.families = read_names(field(tables, "families"));
  found.internal_folders = read_names(field(tables, "internal_folders"));
  found.operators = read_operators(field(tables, "operators"));
  found.dtypes = read_dtypes(field(tables, "dtypes"));
  found.kernels = read_kernels(field(tables, "kernels"));
  read_index_checks(field(tables, "device_checks"), found.checks);
  read_alerts(field(tables, "alerts"), found.checks);
  read_words(field(tables, "texts"), found.texts);
  found.texts.complex128_refused = PyObject_IsTrue(field(tables, "complex128_refused")) == 1;
  read_casts(field(tables, "casts"), found.texts);
  read_same_gpu(field(tables, "same_gpu"), found.texts);
  read_limits(field(tables, "limits"), found.texts);
  return found;
}

void put_in_force(RuleTables tables) {
  texts() = std::move(tables.texts);
  set_internal_prefixes(std::move(tables.internal_folders));
  set_families(std::move(tables.families));
  enter_rules(tables.operators, tables.dtypes, tables.kernels, std::move(tables.checks));
}

// `tables`: anymps.device._rule_tables.RuleTables. One that is missing or has another shape raises before anything changes.
void configure_from_python(PyObject* tables) {
  put_in_force(read(tables));
}

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

PyMethodDef rule_methods[] = {
    method<&configure_from_python>("configure", "Says what MPS does with a call. Once a process, before all else."),
    method<&set_hazards_from_python>("set_hazards", "Puts these known faults of MPS in force, and no others."),
    method<&hazards_of_call>("hazards_of", "The known faults in force that a call would meet."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
