// Waits that a program asks for.
#include "device/waits.h"

#include "device/books.h"
#include "device/fork.h"
#include "law/law.h"

namespace anymps {

void synchronize_device(const char* name) {
  enter_device();
  const int64_t start = now_ns();
  tape::mark(mark_rule(name), 0, start, start, Wait::Synchronize);
  host_has_waited();
}

void empty_device_cache() {
  enter_device();
  const int64_t start = now_ns();
  books().model().empty_cache();
  tape::mark(mark_rule("anymps::empty_cache"), 0, start, now_ns(), Wait::EmptyCache);
  host_has_waited();
}

}  // namespace anymps
