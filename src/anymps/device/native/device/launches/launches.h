// Calls that PyTorch's own Metal kernels compute in place of the CPU's (`enable(kernels="real")`).
#pragma once

#include "rules/rules.h"

#include <ATen/core/stack.h>

#include <Python.h>

#include <optional>
#include <string>
#include <unordered_set>

namespace anymps {

// Throws what Python has raised. Needs the GIL.
[[noreturn]] void raise_python_error();

// From now on `launcher(operator, arguments, foreign, numbers)` is offered each call of these operators, with host tensors in
// the place of mps ones; `foreign` are the positions of tensors that the caller has elsewhere, and `numbers` of those that are
// numbers of the program. It answers with a tuple of the results, or None for a call that is not for it. Before the device is
// installed.
void offer_calls(const std::unordered_set<std::string>& operators, PyObject* launcher);

// Has the launcher compute a call whose host arguments end the stack, and puts the results in their place. `given` are the
// caller's arguments; none if all tensors are known to be on mps. False if it has not: then nothing is changed. Raises what
// the launcher raises.
bool launch(const Rule& rule, torch::jit::Stack& stack, c10::ArrayRef<c10::IValue> given);

// The same for an operator whose kernel here is a function of its own, with that function's arguments, all on mps: the result
// of the launcher, nothing if it has none.
template <class... Args>
std::optional<at::Tensor> launched(const Rule& rule, const Args&... args) {
  if (C10_LIKELY(!rule.offered)) {
    return std::nullopt;
  }
  torch::jit::Stack stack;
  torch::jit::push(stack, args...);
  return launch(rule, stack, {}) ? std::optional<at::Tensor>(stack[0].toTensor()) : std::nullopt;
}

}  // namespace anymps
