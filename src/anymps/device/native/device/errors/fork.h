// Whether this process has used the device, and whether it is a forked child of one that has.
#pragma once

#include <c10/macros/Macros.h>

#include <atomic>
#include <cstdint>
#include <string>

namespace anymps {

enum class ProcessState : uint8_t { Fresh, Used, Forked };
inline std::atomic<ProcessState> process_state{ProcessState::Fresh};

// Has the state follow forks. Once a process.
void watch_forks();

// Leave an empty file at this path when the process first uses the device: for the process that started it.
void mark_first_use(std::string path);

void enter_device_slowly();

// To be called where a Mac would hand work to Metal. Raises in a forked child of a process that has come by here.
inline void enter_device() {
  if (C10_UNLIKELY(process_state.load(std::memory_order_relaxed) != ProcessState::Used)) {
    enter_device_slowly();
  }
}

}  // namespace anymps
