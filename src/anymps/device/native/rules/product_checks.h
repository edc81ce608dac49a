// The conditions of known faults in matrix products and linear layers.
#pragma once

#include "rules/seen_call.h"

#include <unordered_map>

namespace anymps::hazard_checks {

void add_product_checks(std::unordered_map<std::string, CheckKind>& checks);

}  // namespace anymps::hazard_checks
