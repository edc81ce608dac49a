// The threads that a launch may use beside the one that calls it.
#pragma once

namespace anymps_rt {

// Calls `work(context)` on up to `workers` threads, this one included. Returns when all calls have.
// `meanwhile(context)` is called from time to time while this thread waits for the others.
void share_work(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*));

}  // namespace anymps_rt
