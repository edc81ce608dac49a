// What the observer has to know of an operator: how its calls are written, decided once for each overload.
#pragma once

#include "feeds/calls_within.h"
#include "rules/rules.h"

#include <ATen/record_function.h>

#include <cstdint>
#include <vector>

namespace anymps::observer {

enum class Kind : uint8_t {
  View,        // not at all: no kernel runs
  Allocation,  // as the birth of a buffer
  Copy,
  Read,
  Kernel,
};

struct Operator {
  explicit Operator(const c10::OperatorHandle& handle);

  const Rule& rule;
  const Rule* called_by;       // the composite operator that leaves for this one, whose known faults it meets; or null
  Kind kind = Kind::Kernel;
  bool dense, sparse;          // has a kernel on mps for such tensors
  bool composite;              // torch makes it of others where there is none
  bool autocast;               // autocast casts its arguments and calls it again
  bool resizes;                // writes into tensors that may get new memory
  bool checks_indices;
  std::vector<bool> fresh;     // by result: whether it is a new tensor
  mutable CallsWithin within;

  bool is_listed(bool any_sparse) const {
    return any_sparse ? sparse : dense;
  }
  Fate fate(bool any_sparse) const {
    return rule.fate == Fate::AlwaysFallback ? Fate::AlwaysFallback : is_listed(any_sparse) ? Fate::Native : Fate::Fallback;
  }
};

// That of a call; nullptr for what is no operator.
const Operator* operator_of(const at::RecordFunction& call);

}  // namespace anymps::observer
