// Who tells the recorder of calls.
#pragma once

#include "feeds/observed_exceptions.h"

#include <Python.h>

// The feed of the check of numbers: for calls that are due, Python is given the arguments before and the results after.
namespace anymps::number_check {

// From now on, on all threads. `before` is called before a call that is due: (operator, overload, arguments) -> what to hand on to
// `after`, or None to let the call go; `after` when it is over: (what `before` gave, results, line, whether in a backward) -> the text of a mark
// at that line, or None. Both run without autograd, autocast, modes and observers, and what they call is not written on the tape.
// `all`: every call is due.
void start(PyObject* before, PyObject* after, bool all);
void stop();

}  // namespace anymps::number_check

// The feed on any device: an observer of all operators (`at::RecordFunction`), which writes on the tape those that reach mps.
namespace anymps::observer {

// Observes from now on, on all threads. `raised` is a Python callable, asked once for each call that ends with an exception:
// (operator, exception, tensors, whether a complex128 is among the arguments, line, whether in a backward) -> Answer.
void start(PyObject* raised);
void stop();

}  // namespace anymps::observer

// The feed on the virtual device: a kernel for every operator, each of which writes what it does on the tape.
namespace anymps {

// Decides which kernel each operator with a rule gets, and registers it with the dispatcher. Called once.
void install_redirect();

}  // namespace anymps
