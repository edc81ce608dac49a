// The tape: one fixed-size entry for every operator, copy and wait, written without locks by the thread that runs it.
#pragma once

#include "recorder/program/progress.h"
#include "recorder/tape/signatures.h"

#include <cstdint>
#include <string>
#include <vector>

namespace anymps {

struct Total {
  uint32_t signature, module, site;
  uint8_t phase, wait, direction;
  uint64_t count;
  int64_t duration_ns, moved_bytes;
};
struct Drained {
  std::string entries;  // packed; empty once the detail limit is reached
  std::vector<SignatureText> signatures;
  std::vector<StepMark> steps;
  std::vector<Round> rounds;
  uint64_t dropped = 0;  // calls without an entry here, since the last drain
};

namespace tape {
void start(uint64_t detail_limit, bool by_observer);
void stop();
void pause(bool paused);
Drained drain();
std::vector<Total> totals();
uint64_t pending();  // entries written and not drained yet
}  // namespace tape
}  // namespace anymps
