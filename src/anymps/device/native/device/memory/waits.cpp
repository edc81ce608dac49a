// Waits that a program asks for, the device's error buffer, and one look for all the checks since the last wait.
#include "device/memory/waits.h"

#include "device/memory/books.h"
#include "device/errors/fork.h"
#include "device/interface/substrate.h"
#include "locks/locks.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/any.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <utility>
#include <vector>

namespace anymps {

thread_local int own_reads = 0;

void wait_for_gpu() {
  const c10::Device device = substrate().alias_device();
  if (C10_UNLIKELY(device.is_cuda())) {
    const WithoutGil others_may_run;
    c10::impl::getDeviceGuardImpl(device.type())->synchronizeDevice(device.index());
  }
}

void mark_wait(const char* name, int64_t start_ns, int64_t end_ns, Wait wait) {
  if (told_by_device()) {
    tape::mark(mark_rule(name), 0, start_ns, end_ns, wait);
  }
}

void synchronize_device(const char* name) {
  enter_device();
  const int64_t start = now_ns();
  wait_for_gpu();
  mark_wait(name, start, now_ns(), Wait::Synchronize);
  host_has_waited();
}

void empty_device_cache() {
  enter_device();
  const int64_t start = now_ns();
  wait_for_gpu();
  books().model().empty_cache();
  mark_wait("anymps::empty_cache", start, now_ns(), Wait::EmptyCache);
  host_has_waited();
}

}  // namespace anymps

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

namespace anymps::late_checks {
namespace {

// A program that never waits must not keep all its indices for ever: then it is looked at in between.
constexpr size_t kMost = 1024;

struct Check {
  at::Tensor flag;  // of one truth value
  std::function<void()> report;
};

Mutex mutex;
std::vector<Check> checks;

}  // namespace

std::atomic<bool> open{false};

void keep(const at::Tensor& flag, std::function<void()> report) {
  size_t count = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    checks.push_back({flag.any().to(c10::kBool), std::move(report)});  // uint8 for uint8
    count = checks.size();
    open.store(true);
  }
  if (C10_UNLIKELY(count >= kMost)) {
    look();
  }
}

void look() {
  std::vector<Check> taken;
  {
    std::lock_guard<std::mutex> lock(mutex);
    taken.swap(checks);
    open.store(false);
  }
  if (taken.empty()) {
    return;  // another thread looks at them
  }
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  std::vector<at::Tensor> flags;
  for (const Check& check : taken) {
    flags.push_back(check.flag);
  }
  const at::Tensor answers = at::stack(flags).cpu();  // one wait, however many there are
  for (size_t i = 0; i < taken.size(); ++i) {
    if (answers.const_data_ptr<bool>()[i]) {
      taken[i].report();
    }
  }
}

}  // namespace anymps::late_checks
