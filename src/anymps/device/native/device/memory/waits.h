// The host waits for the device: errors and checks that are told then, what happens wherever it has, and waits that are no operators.
#pragma once

#include "recorder/recorder.h"
#include "rules/rules.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

// Errors that kernels of the real device write into a buffer: noted at the call, raised at the next wait.
namespace anymps::delayed {

extern std::atomic<bool> pending;
void raise_pending();

struct Taken {
  uint32_t number;  // of its refusal on the tape; 0 if nothing recorded
  std::string message;
};
// What the next wait would have raised, which then raises nothing: for who knows better whose error it is.
std::optional<Taken> take();

// Notes an error of a kernel. The first one between two waits is kept, later ones are lost (torch 2.11 to 2.15,
// MPSStream::checkLastError, which raises the first message of the buffer and forgets the rest).
void note(Refusal kind, const Rule& rule, const std::string& message, const at::Tensor& culprit = {});

// To be called wherever the host has waited for the device: raises what was noted, as torch.AcceleratorError.
inline void check() {
  if (C10_UNLIKELY(pending.load(std::memory_order_relaxed))) {
    raise_pending();
  }
}

}  // namespace anymps::delayed

// Checks whose answer lies on a GPU: asked when the call is queued, looked at where the host waits anyway.
namespace anymps::late_checks {

extern std::atomic<bool> open;
void look();

// Keeps whether an element of `flag`, a tensor of the GPU's, is not zero: then something is wrong, and `report` says what.
void keep(const at::Tensor& flag, std::function<void()> report);

// To be called wherever the host waits, before delayed::check.
inline void settle() {
  if (C10_UNLIKELY(open.load(std::memory_order_relaxed))) {
    look();
  }
}

}  // namespace anymps::late_checks

namespace anymps {

// How many checks of our own read values on this thread: what they wait for is no wait of the program's.
extern thread_local int own_reads;

// Copies have arrived, and an error that a kernel has left is raised as torch.AcceleratorError.
inline void host_has_waited() {
  if (C10_UNLIKELY(own_reads > 0)) {
    return;
  }
  nonblocking::waited();
  late_checks::settle();
  delayed::check();
}

// Returns when a GPU has computed all that is queued. Elsewhere nothing is.
void wait_for_gpu();

// Notes a wait that is no operator, where the device tells of calls.
void mark_wait(const char* name, int64_t start_ns, int64_t end_ns, Wait wait);

// The host waits for the device: notes it on the tape under `name` ("anymps::synchronize").
void synchronize_device(const char* name);

// Gives cached memory back, for which the host waits first, and notes it on the tape.
void empty_device_cache();

}  // namespace anymps
