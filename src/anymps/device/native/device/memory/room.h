// The place of a buffer between its margins (margins.h).
#pragma once

#include <cstddef>

namespace anymps::margins {

// Where the bytes of a buffer lie between its margins.
struct Room {
  char* start = nullptr;  // null: there are none
  std::size_t nbytes = 0, behind = 0;
  bool marked = false;  // whether the margins hold what is looked for after a launch
};

}  // namespace anymps::margins
