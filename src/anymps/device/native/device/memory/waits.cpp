// Waits that a program asks for.
#include "device/memory/waits.h"

#include "device/memory/books.h"
#include "device/errors/fork.h"
#include "device/interface/substrate.h"
#include "rules/rules.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace anymps {

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
