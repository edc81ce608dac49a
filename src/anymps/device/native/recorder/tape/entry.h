// One entry of the tape, as it lies in memory and in the file.
#pragma once

#include <anymps/vocabulary.h>

#include <cstdint>

namespace anymps {

// The packed form documented in docs/architecture/recording-file.md.
struct Entry {
  int64_t start_ns;
  int64_t duration_ns;
  int64_t moved_bytes;
  int64_t sequence;  // forward: number of the autograd node being built; backward: that of the node being run; else -1
  uint32_t signature;
  uint32_t module;
  uint32_t site;
  uint32_t step;
  uint32_t thread;
  uint8_t phase;
  uint8_t wait;
  uint8_t direction;
  uint8_t flags;
  uint32_t refusal;
  uint32_t delayed_us;  // for how long the thread was kept from a core: since its call before, and in what the CPU computes
};
static_assert(sizeof(Entry) == 64, "the packed entry is part of the recording's documented format");

}  // namespace anymps
