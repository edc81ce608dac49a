// Launches of PyTorch's own kernels, kept by the signature of the call that described them: what is the same in each such
// call, the kernel, its table of arguments and the shapes of its results, is made once.
#pragma once

#include "law/law.h"

#include <ATen/core/stack.h>

#include <Python.h>

#include <memory>
#include <string>
#include <unordered_map>

namespace anymps {

struct KeptCall;

// The signature of a call: dtypes, sizes, strides and numbers, but of a float that each launch takes anew (Rule::anew) only
// that it is one. `given` are the caller's arguments (or none), and `arguments` stand for them on the host. Empty for a call that is not kept: its operator takes lists of tensors, or a generator.
std::string signature_of(const Rule& rule, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> given);

// What was kept for a signature, or nothing.
std::shared_ptr<const KeptCall> kept_call(const std::string& signature);

// Keeps what Python's Launcher made of a call (anymps/metal/kernels/_launch_recipes.py): a tuple, or None for a call that is not for it
// whenever it comes. False with a Python error for a tuple of another form. Needs the GIL.
bool keep_call(std::string signature, PyObject* recipe);

// Runs it in place of a call whose host arguments end the stack, and puts the results in their place. False where no kernel
// computes it: then nothing is changed. Raises what a fault of a kernel raises.
bool run_kept(const KeptCall& kept, const Rule& rule, torch::jit::Stack& stack);

// How many calls of each operator were run so.
std::unordered_map<std::string, uint64_t> kept_counts();

}  // namespace anymps
