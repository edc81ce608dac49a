// Locks that fork() waits for: a child finds none of them taken, and whole what they guard.
#pragma once

#include <mutex>

namespace anymps {

// The lock of what threads share. Who forks takes all of them first, and holds the interpreter's lock meanwhile: nothing
// that may wait for that is done under one.
class Mutex : public std::mutex {
 public:
  Mutex();
  ~Mutex();
};

// The same for a lock of torch's that is there as long as the process.
void fork_waits_for(std::mutex& lock);

}  // namespace anymps
