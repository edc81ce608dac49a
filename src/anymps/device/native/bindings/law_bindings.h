// Python's way to the law: what MPS does with a call, from the tables of anymps.rules. No device is needed for it.
#pragma once

#include <Python.h>

namespace anymps {

// configure(law): anymps.device._law.Law. A table that is missing or has another shape raises before anything changes.
PyObject* configure_from_python(PyObject*, PyObject* law);

}  // namespace anymps
