// Exceptions of calls that reach Python: an observer of operators sees that a call has raised, and not what.
#pragma once

#include <Python.h>

#include <functional>

namespace anymps::raised_calls {

// The calling thread's call is on its way out with an exception. `found` gets it as soon as it arrives in a frame of Python's,
// with the GIL held. Answers false where there is no such frame.
bool expect(std::function<void(PyObject* exception)> found);

// Whatever the thread still expects does not come: the exception was caught on the way.
void forget();

}  // namespace anymps::raised_calls
