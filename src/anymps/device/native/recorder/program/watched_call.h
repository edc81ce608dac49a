// A callable in the place of another one that is told of each call, and leaves no frame of its own.
#pragma once

#include <Python.h>

namespace anymps {

// `around` gets the arguments before `original` does, and gives None or what to call afterwards, with the exception that
// came or None. Returns null with a Python error set.
PyObject* make_watched_call(PyObject* original, PyObject* around);

}  // namespace anymps
