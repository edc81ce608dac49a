// What it means that a call has raised: Python is asked, once the exception has arrived there.
#pragma once

#include <Python.h>

#include "feeds/observed_operators.h"
#include "recorder/recorder.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace anymps::observer {

// Whom to ask; nullptr: nobody.
void set_asked(PyObject* raised);

// The calling thread's call is on its way out with an exception. Its span ends when it is known what that means.
void expect_exception(const Operator& op, Span span, c10::SmallVector<at::Tensor, 4> inputs, bool wide_complex);

}  // namespace anymps::observer
