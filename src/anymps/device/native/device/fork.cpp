// A child of fork() cannot use the device that its parent has used: on a Mac Metal crashes or hangs there.
#include "device/fork.h"

#include <c10/util/Exception.h>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace anymps {
namespace {

void in_child() {
  if (process_state.load(std::memory_order_relaxed) == ProcessState::Used) {
    process_state.store(ProcessState::Forked, std::memory_order_relaxed);
  }
}

}  // namespace

void watch_forks() {
#if !defined(_WIN32)
  pthread_atfork(nullptr, nullptr, &in_child);
#endif
}

// Torch marks such a child too (`torch.mps._is_in_bad_fork()`), but asks the mark before seeding only; what Metal does in
// it has no Python error (pytorch pull request 178037). This text is ours.
void enter_device_slowly() {
  TORCH_CHECK(
      process_state.load(std::memory_order_relaxed) != ProcessState::Forked,
      "anymps: the mps device was used before this process was forked, and a Mac crashes or hangs when a forked child uses "
      "Metal; keep mps out of this process (a DataLoader's workers should make CPU tensors, moved in the main process), or "
      "start it with the 'spawn' method, which is the default on a Mac");
  process_state.store(ProcessState::Used, std::memory_order_relaxed);
}

}  // namespace anymps
