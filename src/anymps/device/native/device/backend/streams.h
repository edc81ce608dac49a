// Streams of torch 2.15: a default one, a pool of 32 and a current one in each thread. Here all of them are in order,
// because every operator is done when its call returns; up to 2.14 there is the default stream alone.
#pragma once

#include <c10/core/Stream.h>

namespace anymps::streams {

// The calling thread's current stream.
c10::Stream current();
void set_current(int64_t id);

// The next stream of the pool, round robin.
c10::Stream next();

// The stream with this number: 0 is the default one, 1 to 32 are the pool. Raises for any other, in the backend's words.
c10::Stream by_id(int64_t id);

}  // namespace anymps::streams
