// torch.mps.Event and torch.Event on an in-order device: ids from a pool, host times, the real backend's error texts.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>

namespace anymps::events {

uint32_t acquire(bool timing);
void release(uint32_t id);
void record(uint32_t id);
void wait(uint32_t id);
void synchronize(uint32_t id);
bool query(uint32_t id);
double elapsed_ms(uint32_t start, uint32_t end);

}  // namespace anymps::events

// Streams of torch 2.15: a default one, a pool of 32 and a current one in each thread. Here all of them are in order,
// because every operator is done when its call returns; up to 2.14 there is the default stream alone.
namespace anymps::streams {

// The calling thread's current stream.
c10::Stream current();
void set_current(int64_t id);

// The next stream of the pool, round robin.
c10::Stream next();

// The stream with this number: 0 is the default one, 1 to 32 are the pool. Raises for any other, in the backend's words.
c10::Stream by_id(int64_t id);

}  // namespace anymps::streams
