// The names of CUDA in calls of torch's own functions, each handed to Python for the name that stands for it.
#pragma once

#include <Python.h>

namespace anymps {

// From now on `answer(function, name)` is asked for another name wherever one of `functions` (built-in functions, and
// methods of built-in classes) or a constructor of `types` is given "cuda" or "cuda:<index>"; None ends that. What is
// entered this way stays so, and costs a look at its texts. Returns false with a Python error set.
bool rename_cuda(PyObject* answer, PyObject* functions, PyObject* types);

}  // namespace anymps
