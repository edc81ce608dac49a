// The few places where the native core asks Python: who called, and what to note about a refusal.
#pragma once

#include "rules/rules.h"

#include <Python.h>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>

namespace anymps {

// Python callables, held for the life of the process.
struct Callbacks {
  PyObject* refusal = nullptr;  // (number, kind, operator, error class, message, tensor or None) -> None
  PyObject* surfaced = nullptr;  // (number of a refusal) -> None: its delayed error is raised now
  PyObject* copied = nullptr;  // (CPU tensor, number of the line, bool) -> None: it was copied to mps there, for the third step unchanged
  PyObject* fault = nullptr;    // (id of a known fault, number of the line) -> None: a call there meets it, before it runs
  PyObject* module = nullptr;   // (module) -> int: the number of an nn.Module on the tape
};
Callbacks& callbacks();

// While it lives, this thread's Python frames run as they are: inside a compiled function torch.compile would translate
// our callbacks too. Needs the GIL; a pending error is kept.
class NoDynamo {
 public:
  NoDynamo();
  ~NoDynamo();
  NoDynamo(const NoDynamo&) = delete;
  NoDynamo& operator=(const NoDynamo&) = delete;

 private:
  PyObject* former_ = nullptr;
};

// A boxed value as Python has it, a new reference; nullptr, without an exception of Python, for what has no such form. A number in a
// tensor's place is a number again, and a device its text, unless values are wanted `as_given`. Needs the GIL.
PyObject* to_python(const c10::IValue& value, bool as_given = false);

// A recording begins: nothing has been told of it.
void forget_told();

// Answers the refusal's number on the tape; 0 while nothing records.
uint32_t note_refusal(Refusal kind, const Rule& rule, ErrorClass error, const std::string& message, const at::Tensor& culprit);

// A CPU tensor was copied to mps: Python is told once a line, and looks there for what made it; and once a tensor that
// comes by in every step as it was.
void note_copy_to_mps(const at::Tensor& source);

// A delayed error, noted before under that number, is raised by the calling line.
void note_surfaced(uint32_t number);

// Notes that a call, by its operator's name, meets this known fault of MPS.
void note_fault(const HazardRow& row, const std::string& call);

// Notes each fault in force that a call meets, up to one with a text: a Mac refuses the call there, and that one is answered.
// Only for rules with hazards.
const HazardRow* note_faults(const Rule& rule, c10::ArrayRef<Operand> operands);

// A callable in the place of another one that is told of each call, and leaves no frame of its own: `around` gets the arguments before `original` does, and gives None or what to call afterwards, with the exception that
// came or None. Returns null with a Python error set.
PyObject* make_watched_call(PyObject* original, PyObject* around);

// From now on calls of this Python function, `torch.nn.Module.__call__`, are noted. Returns false with a Python error set.
bool watch_module_calls(PyObject* function);
void unwatch_module_calls();

void forget_module_number(PyObject* module);
void forget_module_numbers();

}  // namespace anymps
