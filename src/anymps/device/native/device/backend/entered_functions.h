// Torch's own functions, entered: for names of CUDA, each handed to Python for the name that stands for it, and for a default
// device without a mode, which only the functions that make tensors look at: other calls cost nothing.
#pragma once

#include <Python.h>

namespace anymps {

// From now on `answer(function, name)` is asked for another name wherever one of `functions` (built-in functions, and
// methods of built-in classes) or a constructor of `types` is given "cuda" or "cuda:<index>"; None ends that. What is
// entered this way stays so, and costs a look at its texts. Returns false with a Python error set.
bool rename_cuda(PyObject* answer, PyObject* functions, PyObject* types);

// Enters the given built-in functions by a way that adds `device=` while this thread has a default device. `context` is the
// class of `with torch.device(...)`: one that is open has its own device.
bool watch_factories(PyObject* functions, PyObject* context);

// Sets the calling thread's default device; None for none.
void set_default_device(PyObject* device);

}  // namespace anymps
