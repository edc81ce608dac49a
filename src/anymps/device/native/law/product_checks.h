// The conditions of known faults in matrix products and linear layers.
#pragma once

#include "law/hazard_checks.h"

namespace anymps::hazard_checks {

void add_product_checks(std::unordered_map<std::string, CheckKind>& checks);

}  // namespace anymps::hazard_checks
