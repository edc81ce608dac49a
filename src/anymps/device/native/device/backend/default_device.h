// A default device without a mode: only the functions that make tensors look at it, and other calls cost nothing.
#pragma once

#include <Python.h>

namespace anymps {

// Enters the given built-in functions by a way that adds `device=` while this thread has a default device. `context` is the
// class of `with torch.device(...)`: one that is open has its own device.
bool watch_factories(PyObject* functions, PyObject* context);

// Sets the calling thread's default device; None for none.
void set_default_device(PyObject* device);

}  // namespace anymps
