// Entries that are no calls: refusals, known faults met, copies touched too early, and what Python marks.
#pragma once

#include "rules/rules.h"

#include <c10/core/TensorImpl.h>

#include <cstdint>

namespace anymps::tape {

// Where a refused call was, if it is not the line that runs.
struct Place {
  uint32_t site = 0;
  bool backward = false;
};
Place here();
// Writes a refused entry for the calling thread, returns its number.
uint32_t note_refusal(const Rule& rule, Fate fate, const Place& place = here());
// Writes a mark for a known fault of MPS that the call about to run would meet, or that a call at `site` has met.
void note_hazard(const Rule& rule, uint32_t site = 0);
// Writes a mark for a copy whose host side was touched too early: where that was, and as related lines the copy and the
// wait that came later (0: none).
void note_unsafe_copy(const Rule& rule, uint32_t site, uint32_t copy, uint32_t wait);
// Writes a mark for something at a line, and another line that belongs to it (0: none).
void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes, int64_t duration_ns = 0);
// Says where a tensor was allocated that no operator made (torch.empty); writes no entry.
void note_empty(const Rule& rule, const c10::TensorImpl* tensor);
void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait);

}  // namespace anymps::tape
