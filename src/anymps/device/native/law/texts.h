// Error texts of the real backend, by torch version, and the one way to raise them.
#pragma once

#include "law/rule.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <string>
#include <unordered_map>

namespace anymps {

struct Limit {
  uint8_t error;  // ErrorClass
  std::string text;
};

// Filled once from anymps/rules/_texts.py; `%OP%` stands for the operator's name.
struct Texts {
  std::string float64;
  std::string missing;
  std::string distributed;
  std::string fallback_warning;
  std::string view_fallback_warning;
  std::string not_checked;  // added to the CPU's words about an index that the device does not look at
  bool complex128_refused = true;

  // Casts on the device (anymps/rules/_casts.py): bit t is set if ScalarType t has one; `%OP%` stands for another's name.
  uint64_t castable = 0;
  Limit refused_cast;

  // By base name of the operator and argument of its schema: what the check of family "same_gpu" says of it.
  std::unordered_map<std::string, std::unordered_map<std::string, std::string>> same_gpu;

  // Fixed texts of single operators that this release has (anymps/rules/_texts_runtime.py, OPERATOR_LIMITS).
  std::unordered_map<std::string, Limit> limits;
};
Texts& texts();

enum class Refusal : uint8_t { Missing, Float64, Complex128, Dtype, Device, Generator, Rank, Layout, Memory, Distributed, Argument, Index, Determinism };
enum class ErrorClass : uint8_t { Runtime, Type, NotImplemented, Value, Index, Accelerator };

// Notes the refusal on the tape (with the tensor that caused it, if there is one) and throws the torch exception.
// The one way to raise what MPS says: whatever goes by it is in a recording, with its line.
[[noreturn]] void refuse(
    Refusal kind,
    const Rule& rule,
    ErrorClass error,
    const std::string& message,
    const at::Tensor& culprit = {});

// Raises the text of that name in OPERATOR_LIMITS, unless this release does not have it.
// Says of a failed assertion in the core's own code that it is a bug of anymps; any other error passes as it is. To be called
// where an error leaves a kernel of ours.
[[noreturn]] void rethrow_as_ours(const c10::Error& error);

void refuse_limit(const Rule& rule, const char* name, const at::Tensor& culprit = {});

std::string fill_in(std::string text, const std::string& op);

}  // namespace anymps
