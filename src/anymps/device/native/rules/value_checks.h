// Known faults that only the values of a call show.
#pragma once

#include "rules/seen_call.h"

#include <string>
#include <unordered_map>

namespace anymps {

// Whether the host can read what a tensor on mps holds: it computes at once, on memory of its own. False until it is set.
void read_values(bool readable);

namespace hazard_checks {

void add_value_checks(std::unordered_map<std::string, CheckKind>& checks);

}  // namespace hazard_checks
}  // namespace anymps
