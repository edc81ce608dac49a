// Known faults of MPS that a call meets, noted on the tape.
#pragma once

#include "rules/rules.h"

#include <string>

namespace anymps {

// Notes that a call, by its operator's name, meets this fault.
void note_fault(const HazardRow& row, const std::string& call);

// Notes each fault in force that a call meets, up to one with a text: a Mac refuses the call there, and that one is answered.
// Only for rules with hazards.
const HazardRow* note_faults(const Rule& rule, c10::ArrayRef<Operand> operands);

}  // namespace anymps
