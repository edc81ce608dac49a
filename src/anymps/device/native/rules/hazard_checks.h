// The conditions under which a call meets a known fault of the real backend.
#pragma once

#include "rules/seen_call.h"

#include <unordered_map>

namespace anymps::hazard_checks {

// By the name in anymps.rules.Check.
const std::unordered_map<std::string, CheckKind>& checks();

void add_product_checks(std::unordered_map<std::string, CheckKind>& checks);  // product_checks.cpp: matrix products, linear layers

}  // namespace anymps::hazard_checks
