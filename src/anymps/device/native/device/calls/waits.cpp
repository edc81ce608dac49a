// Waits that a program asks for.
#include "device/calls/waits.h"

#include "device/memory/books.h"
#include "device/backend/fork.h"
#include "law/law.h"

namespace anymps {

void mark_wait(const char* name, int64_t start_ns, int64_t end_ns, Wait wait) {
  if (told_by_device()) {
    tape::mark(mark_rule(name), 0, start_ns, end_ns, wait);
  }
}

void synchronize_device(const char* name) {
  enter_device();
  const int64_t start = now_ns();
  mark_wait(name, start, start, Wait::Synchronize);
  host_has_waited();
}

void empty_device_cache() {
  enter_device();
  const int64_t start = now_ns();
  books().model().empty_cache();
  mark_wait("anymps::empty_cache", start, now_ns(), Wait::EmptyCache);
  host_has_waited();
}

}  // namespace anymps
