// Error texts of the real backend, by torch version, and the one way to raise them.
#pragma once

#include "rule.h"

#include <ATen/core/Tensor.h>

#include <string>
#include <unordered_map>

namespace anymps {

// Filled once from anymps/rules/_texts.py; `%OP%` stands for the operator's name.
struct Texts {
  std::string float64;
  std::string missing;
  std::string distributed;
  std::string fallback_warning;
  std::string view_fallback_warning;
  bool complex128_refused = true;

  // By base name of the operator and argument of its schema: what the check of family "same_gpu" says of it.
  std::unordered_map<std::string, std::unordered_map<std::string, std::string>> same_gpu;
};
Texts& texts();

enum class Refusal : uint8_t { Missing, Float64, Complex128, Dtype, Device, Generator, Rank, Layout, Memory, Distributed };
enum class ErrorClass : uint8_t { Runtime, Type, NotImplemented, Value, Index };

// Notes the refusal on the tape (with the tensor that caused it, if there is one) and throws the torch exception.
[[noreturn]] void refuse(
    Refusal kind,
    const Rule& rule,
    ErrorClass error,
    const std::string& message,
    const at::Tensor& culprit = {});

std::string fill_in(std::string text, const std::string& op);

}  // namespace anymps
