// What it means that a call has raised: Python is asked, once the exception has arrived there.
#pragma once

#include <Python.h>

#include "feeds/observed_operators.h"
#include "recorder/recorder.h"

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

namespace anymps::observer {

// What an exception means, as Python tells it.
enum class Answer : int {
  Raised = 0,   // any device would have raised it
  Refused = 1,  // noted as a refusal by who was asked
  Late = 2,     // of another call: this one was done
  Foreign = 3,  // a Python exception thrown through the call, such as a checkpoint's early stop: no kernel has run
};

// Whom to ask; nullptr: nobody.
void set_asked(PyObject* raised);

// The calling thread's call is on its way out with an exception. Its span ends when it is known what that means.
void expect_exception(const Operator& op, Span span, c10::SmallVector<at::Tensor, 4> inputs, bool wide_complex);

}  // namespace anymps::observer
