// Python's way to the observer of all operators.
#pragma once

#include <Python.h>

namespace anymps {

extern PyMethodDef observer_methods[];

}  // namespace anymps
