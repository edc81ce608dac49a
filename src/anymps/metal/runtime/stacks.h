// Stacks of fibers, and the switch between them.
#pragma once

#include <cstddef>

// Leaves the running stack, whose pointer goes to `*from`, for the one whose pointer is `to`.
extern "C" __attribute__((visibility("hidden"))) void anymps_rt_switch(void** from, void* to);

namespace anymps_rt {

constexpr unsigned kMaxThreads = 1024;  // of a group
constexpr unsigned kLanes = 32;         // of a SIMD group

// The pointer of a stack that begins in `entry` at the first switch to it. `entry` must not return.
void* first_frame(char* top, void (*entry)());

// Stacks of at least `size` bytes for `count` fibers; memory comes as they are used. One page below each stays closed.
class Stacks {
 public:
  Stacks(size_t size, unsigned count);
  Stacks(const Stacks&) = delete;
  ~Stacks();
  char* top(unsigned fiber);  // null where the system gives no memory

 private:
  const size_t page_;  // 4, 16 or 64 KiB
  const size_t size_;
  const unsigned count_;
  char* memory_ = nullptr;
  unsigned opened_ = 0;  // stacks that can be written
};

}  // namespace anymps_rt
