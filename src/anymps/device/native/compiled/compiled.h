// What programs that AOTInductor has compiled find here: who loads them, and the functions that they call.
#pragma once

#include <Python.h>

#include <string>

namespace anymps::compiled {

// Has torch load packages for mps, as its macOS build does. `aoti`: the module torch._C._aoti, which gets the class for programs
// outside of a package. `refusal`: what is raised instead, if not empty.
void install_runner(PyObject* aoti, const std::string& refusal);

}  // namespace anymps::compiled
