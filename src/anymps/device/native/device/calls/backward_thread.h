// On which thread a backward runs. On a Mac it is a thread of the autograd engine's own; here it is the calling one where nothing
// in the graph can tell the difference: no code of Python's, no hook, no observer. Waking a thread for every backward costs more
// than all else that the device adds to a small step.
#pragma once

#include <Python.h>

#include <ATen/SavedTensorHooks.h>
#include <c10/macros/Macros.h>

namespace anymps::backward_thread {

// `original` is torch's own `run_backward`; what stands in its place is `run`.
void set_engine(PyObject* original);

// torch.autograd.Variable._execution_engine.run_backward, with its arguments.
PyObject* run(PyObject* args, PyObject* kwargs);

void note_saved_tensor_hooks_slowly();

// To be called at each forward operator: hooks of saved tensors (a checkpoint's) are code that runs in the backward, and a graph
// does not show them.
inline void note_saved_tensor_hooks() {
  if (C10_UNLIKELY(!at::SavedTensorDefaultHooks::get_tls_state().stack.empty())) {
    note_saved_tensor_hooks_slowly();
  }
}

}  // namespace anymps::backward_thread
