// Known faults of the real backend: which are in force, and which of them a call meets.
#pragma once

#include "rules/operand.h"

#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/FunctionRef.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <vector>

namespace anymps {

// Puts these hazards in force, and no others. Not while operators run.
void set_hazards(std::vector<HazardRow> rows);

// Calls `found` for each hazard in force that a call meets, in their order. Only for rules with hazards.
void each_hazard(const Rule& rule, c10::ArrayRef<Operand> operands, c10::function_ref<void(const HazardRow&)> found);

// Boxed arguments as operands; the lists that they point into live here.
class Unboxing {
 public:
  explicit Unboxing(c10::ArrayRef<c10::IValue> arguments);
  c10::ArrayRef<Operand> operands() const {
    return operands_;
  }

 private:
  Operand of(const c10::IValue& value);

  c10::SmallVector<Operand, 12> operands_;
  // Operands point at the elements, which stay where they are when a list of lists grows.
  std::vector<std::vector<at::Tensor>> tensors_;
  std::vector<std::vector<c10::SymInt>> sizes_;
  std::vector<std::vector<double>> numbers_;
};

// The first fault in force with a text that a call meets: a Mac refuses the call there. nullptr: none.
const HazardRow* refused_by_hazard(const Rule& rule, c10::ArrayRef<Operand> operands);

// A fault that shows only where the call's source is read again.
bool shows_later(const HazardRow& row);

// The hazards in force that a call would meet, by id; nothing is noted or raised.
std::vector<std::string> hazards_of(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

// The hazard of an event, which is no operator: the one in force that `elapsed_time` meets, or nullptr.
struct EventUse {
  bool timing = false;        // made with enable_timing=True
  bool recorded = false;
  bool measured = false;      // elapsed_time has used up the signal of the last record, up to torch 2.14
  bool synchronized = false;  // synchronize may have
};
const HazardRow* event_hazard(const EventUse& last);  // of measuring up to this event

// The hazard in force with that check, or nullptr: of `torch.accelerator.empty_host_cache()`, which is no operator either
// ("host_cache"), and of integers divided by zero, which only their values show ("zero_divisors").
const HazardRow* hazard_named(const char* check);

}  // namespace anymps
