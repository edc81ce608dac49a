// Boxed values as Python has them.
#pragma once

#include <Python.h>

#include <ATen/core/ivalue.h>

namespace anymps::observer {

// A new reference. A number in a tensor's place is a number again, a device its text; nullptr, without an exception of Python, for
// what has no such form. Needs the GIL.
PyObject* to_python(const c10::IValue& value);

}  // namespace anymps::observer
