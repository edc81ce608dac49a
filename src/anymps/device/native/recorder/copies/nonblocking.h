// Copies with non_blocking=True: the host's side of each must be left alone until the host has waited for the device.
//
// A Mac's device reads the source of a copy to mps, and writes the destination of a copy to the CPU, some time before the
// next wait. Here the bytes move at once. Copies that a Mac would still be at are remembered until the next wait, and
// what the program does to their host side meanwhile is noted on the tape, with the line of the copy.
#pragma once

#include "recorder/copies/pending_copies.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <limits>

typedef struct _object PyObject;

namespace anymps::nonblocking {

// Strict: what arrives on the CPU is not a number (of integers: far from any) until the host has waited.
void hold_back(bool strict);

// Whether such a copy returns before it is done. One to mps between different strides does not (torch 2.13, Copy.mm).
bool returns_early(const at::Tensor& destination, const at::Tensor& source);

// After a copy that has returned early. A copy to mps that casts has read its source already: on the CPU.
void started_to_mps(const at::Tensor& source, bool casts);
void started_to_cpu(at::Tensor& destination);

// How many copies have started: an event that is recorded now covers those.
uint64_t started();

// The host has waited for the copies up to that number.
void settle(uint64_t up_to);
inline void waited(uint64_t up_to = std::numeric_limits<uint64_t>::max()) {
  if (C10_UNLIKELY(pending.load(std::memory_order_relaxed))) {
    settle(up_to);
  }
}

void recording_starts();  // what came before has no lines on this tape
void recording_ends();    // without a wait: sources are looked at a last time

}  // namespace anymps::nonblocking
