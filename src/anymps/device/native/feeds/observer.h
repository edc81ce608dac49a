// The feed on any device: an observer of all operators (`at::RecordFunction`), which writes on the tape those that reach mps.
#pragma once

#include <Python.h>

namespace anymps::observer {

// Observes from now on, on all threads. `raised` is a Python callable, asked once for each call that ends with an exception:
// (operator, exception, tensors, whether a complex128 is among the arguments, line, whether in a backward) -> Answer.
void start(PyObject* raised);
void stop();

}  // namespace anymps::observer
