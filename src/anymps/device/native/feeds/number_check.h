// The feed of the check of numbers: for calls that are due, Python is given the arguments before and the results after.
#pragma once

#include <Python.h>

namespace anymps::number_check {

// From now on, on all threads. `before` is called before a call that is due: (operator, overload, arguments) -> what to hand on to
// `after`, or None to let the call go; `after` when it is over: (what `before` gave, results, line, whether in a backward) -> the text of a mark
// at that line, or None. Both run without autograd, autocast, modes and observers, and what they call is not written on the tape.
// `all`: every call is due.
void start(PyObject* before, PyObject* after, bool all);
void stop();

}  // namespace anymps::number_check
