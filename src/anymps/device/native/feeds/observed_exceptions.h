// What it means that a call has raised: Python is asked, once the exception has arrived there. And what is remembered from one of the
// host's waits to the next, as an exception may be of an earlier call.
#pragma once

#include "feeds/observed_operators.h"
#include "recorder/recorder.h"

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <utility>

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

// The calling thread's call is on its way out with an exception: an observer of operators sees that it has raised, and not what.
// Its span ends when that has arrived in a frame of Python's, and it is known what it means.
void expect_exception(const Operator& op, Span span, c10::SmallVector<at::Tensor, 4> inputs, bool wide_complex);

// What the thread still expects does not come: the exception was caught on the way.
void forget_exception();

// The host has waited.
void waited();

// An operator that looks at its indices on the device has run.
void note_checked(const Operator& op);

// The calls whose indices the device has looked at since the last wait: the first one's operator, and its line if all have
// that one, else 0.
std::pair<std::string, uint32_t> take_checked();

}  // namespace anymps::observer
