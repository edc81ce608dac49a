// A child of fork() cannot use the device that its parent has used: on a Mac Metal crashes or hangs there.
#include "device/errors/fork.h"

#include "locks/locks.h"

#include <c10/util/Exception.h>

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <utility>

namespace anymps {
namespace {

Mutex mark_lock;
std::string first_use_mark;

void in_child() {
  if (process_state.load(std::memory_order_relaxed) == ProcessState::Used) {
    process_state.store(ProcessState::Forked, std::memory_order_relaxed);
  }
}

void leave_mark() {
  std::lock_guard<std::mutex> guard(mark_lock);
  if (!first_use_mark.empty()) {
    // Nothing at its place is opened or followed; a mark that another process left is as good.
    const int file = ::open(first_use_mark.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) {
      ::close(file);
    }
    first_use_mark.clear();
  }
}

}  // namespace

void mark_first_use(std::string path) {
  std::lock_guard<std::mutex> guard(mark_lock);
  first_use_mark = std::move(path);
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, &in_child);
}

// Torch marks such a child too (`torch.mps._is_in_bad_fork()`), but asks the mark before seeding only; what Metal does in
// it has no Python error (pytorch pull request 178037). This text is ours.
void enter_device_slowly() {
  TORCH_CHECK(
      process_state.load(std::memory_order_relaxed) != ProcessState::Forked,
      "anymps: the mps device was used before this process was forked, and a Mac crashes or hangs when a forked child uses "
      "Metal; keep mps out of this process (a DataLoader's workers should make CPU tensors, moved in the main process), or "
      "start it with the 'spawn' method, which is the default on a Mac");
  // First the state, then the mark: a child that is forked while another thread leaves the mark is one of a process that
  // has used the device.
  process_state.store(ProcessState::Used, std::memory_order_seq_cst);
  leave_mark();
}

}  // namespace anymps
