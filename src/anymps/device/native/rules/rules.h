// What MPS does with a call: the rule of each operator, the backend's texts, the known faults.
#pragma once

#include "rules/hazards.h"
#include "rules/rule.h"
#include "rules/rule_list.h"
#include "rules/hazard_checks.h"

#include <cstdint>
#include <string>
#include <unordered_map>

namespace anymps {

// An error text of the real backend, by torch version.
struct Limit {
  uint8_t error;  // ErrorClass
  std::string text;
};

// Filled once from anymps/rules/texts; `%OP%` stands for the operator's name.
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

  // Fixed texts of single operators that this release has (anymps/rules/_limits.py, OPERATOR_LIMITS).
  std::unordered_map<std::string, Limit> limits;
};
inline Texts& texts() {
  static Texts the_texts;
  return the_texts;
}

inline std::string fill_in(std::string text, const std::string& op) {
  static const std::string mark = "%OP%";
  for (size_t at = text.find(mark); at != std::string::npos; at = text.find(mark, at + op.size())) {
    text.replace(at, mark.size(), op);
  }
  return text;
}

}  // namespace anymps
