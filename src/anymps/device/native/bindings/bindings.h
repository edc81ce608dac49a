// The parts of the Python module `_native`: a table of functions each, in the file of its name.
#pragma once

#include <Python.h>

namespace anymps {

extern PyMethodDef rule_methods[];
extern PyMethodDef hazard_methods[];
extern PyMethodDef device_methods[];
extern PyMethodDef memory_methods[];
extern PyMethodDef tape_methods[];
extern PyMethodDef progress_methods[];
extern PyMethodDef observer_methods[];
extern PyMethodDef shader_methods[];

}  // namespace anymps
