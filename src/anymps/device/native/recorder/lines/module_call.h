// Which torch.nn.Module runs, noted on the tape at each call of one.
#pragma once

#include <Python.h>

namespace anymps {

// From now on calls of this Python function, `torch.nn.Module.__call__`, are noted. Returns false with a Python error set.
bool watch_module_calls(PyObject* function);
void unwatch_module_calls();

void forget_module_number(PyObject* module);
void forget_module_numbers();

}  // namespace anymps
