// Metal shaders that compiled extensions and AOTInductor's packages launch, by torch's C interface `aoti_torch_mps_*`.
#pragma once

#include <Python.h>

namespace anymps {

// From now on `compile(text)` makes the libraries of shaders that extensions ask for.
void answer_extensions(PyObject* compile);

}  // namespace anymps
