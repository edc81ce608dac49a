// The few places where the native core asks Python: who called, and what to note about a refusal.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Tensor.h>

#include <Python.h>

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

// A recording begins: nothing has been told of it.
void forget_told();

// Answers the refusal's number on the tape; 0 while nothing records.
uint32_t note_refusal(Refusal kind, const Rule& rule, ErrorClass error, const std::string& message, const at::Tensor& culprit);

// A CPU tensor was copied to mps: Python is told once a line, and looks there for what made it; and once a tensor that
// comes by in every step as it was.
void note_copy_to_mps(const at::Tensor& source);

// A call is about to meet a known fault: for who wants to save what there is before the process ends.
void tell_of_fault(const std::string& id, uint32_t site);

// A delayed error, noted before under that number, is raised by the calling line.
void note_surfaced(uint32_t number);

}  // namespace anymps
