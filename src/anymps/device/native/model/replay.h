// A trace of allocations and frees given to the allocator of another Mac.
#pragma once

#include "model/heap.h"

#include <cstdint>
#include <string>
#include <vector>

namespace anymps {

struct Replayed {
  uint64_t peak_allocated = 0;
  uint64_t peak_reserved = 0;
  int64_t failed = -1;    // the place in the trace of the allocation that failed, or -1
  std::string message;    // torch's text for it
};

// `trace`: a positive number is an allocation of so many bytes, -k frees the k-th allocation (from 1), 0 is an allocation of
// nothing. Throws InvalidSetting for watermarks that torch refuses, std::invalid_argument for a trace that makes no sense.
Replayed replay(const HeapConfig& config, const std::vector<int64_t>& trace);

}  // namespace anymps
