// The device's error buffer.
#include "device/memory/delayed.h"

#include "locks/locks.h"
#include "recorder/recorder.h"

#include <c10/util/Exception.h>

#include <mutex>
#include <utility>

namespace anymps::delayed {
namespace {

Mutex mutex;
std::string first;       // the message that the next wait raises
uint32_t number = 0;     // of its refusal on the tape

}  // namespace

std::atomic<bool> pending{false};

void note(Refusal kind, const Rule& rule, const std::string& message, const at::Tensor& culprit) {
  const uint32_t noted = told_by_device() ? note_refusal(kind, rule, ErrorClass::Accelerator, message, culprit) : 0;
  std::lock_guard<std::mutex> lock(mutex);
  if (!pending.load(std::memory_order_relaxed)) {
    first = message;
    number = noted;
    pending.store(true);
  }
}

std::optional<Taken> take() {
  std::lock_guard<std::mutex> lock(mutex);
  if (!pending.load()) {
    return std::nullopt;
  }
  pending.store(false);
  return Taken{std::exchange(number, 0), std::exchange(first, {})};
}

void raise_pending() {
  const std::optional<Taken> taken = take();
  if (!taken.has_value()) {
    return;  // another thread has waited too, and raised it
  }
  note_surfaced(taken->number);
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::AcceleratorError(here, 1, taken->message);
}

}  // namespace anymps::delayed
