// Python's way to the hazards: putting them in force, and asking which ones a call would meet.
#pragma once

#include <Python.h>

namespace anymps {

// set_hazards(rows): anymps.rules.hazard_table()
PyObject* set_hazards_from_python(PyObject*, PyObject* rows);

// hazards_of(operator, arguments) -> ids; arguments are tensors, numbers, bools, None and lists of one kind of them.
PyObject* hazards_of_from_python(PyObject*, PyObject* args);

}  // namespace anymps
