// What the runtime of Metal shaders asks the device for: whether a launch belongs on the tape, and late errors.
#pragma once

#include <Python.h>

namespace anymps {

// shaders_by_operator() -> whether a launch must go by an operator: something records, or nothing is computed.
PyObject* shaders_by_operator(PyObject*, PyObject*);

// note_shader_error(kernel, message): a kernel has written into its error buffer; the next wait raises it.
PyObject* note_shader_error(PyObject*, PyObject* args);

}  // namespace anymps
