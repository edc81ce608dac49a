// The host's waits as an observer is told of them, and the calls whose indices the device has looked at since.
#pragma once

#include "feeds/observed_operators.h"

#include <cstdint>
#include <string>
#include <utility>

namespace anymps::observer {

// The host has waited.
void waited();

// An operator that looks at its indices on the device has run.
void note_checked(const Operator& op);

// The calls whose indices the device has looked at since the last wait: the first one's operator, and its line if all have
// that one, else 0.
std::pair<std::string, uint32_t> take_checked();

}  // namespace anymps::observer
