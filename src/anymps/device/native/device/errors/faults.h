// Calls that meet a known fault of MPS: noted, and raised where a Mac would abort or refuse.
#pragma once

#include "rules/rules.h"

#include <array>

namespace anymps {

// Only for rules with hazards.
void meet_hazards(const Rule& rule, c10::ArrayRef<Operand> operands);

// The same from the typed arguments of a call, and from boxed ones.
template <class... Args>
void check_hazards(const Rule& rule, const Args&... args) {
  const std::array<Operand, sizeof...(Args)> operands{operand_of(args)...};
  meet_hazards(rule, operands);
}
void check_hazards(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

// Hazards of events, which are no operators.
void meet_event_hazard(const EventUse& last);

// That of `torch.accelerator.empty_host_cache()`.
void meet_host_cache_hazard();

}  // namespace anymps
