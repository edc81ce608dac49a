// The feed on any device: an observer of all operators (`at::RecordFunction`), which writes on the tape those that reach mps.
#pragma once

#include <Python.h>

namespace anymps::observer {

// Observes from now on, on all threads. `raised` is a Python callable, asked once for each call that ends with an exception:
// (operator, exception, tensors, whether a complex128 is among the arguments, line, whether in a backward) -> Answer.
void start(PyObject* raised);
void stop();

// What an exception means, as Python tells it.
enum class Answer : int {
  Raised = 0,   // any device would have raised it
  Refused = 1,  // noted as a refusal by who was asked
  Late = 2,     // of another call: this one was done
  Foreign = 3,  // a Python exception thrown through the call, such as a checkpoint's early stop: no kernel has run
};

}  // namespace anymps::observer
