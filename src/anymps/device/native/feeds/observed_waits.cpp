// What is remembered from one wait to the next.
#include "feeds/observed_waits.h"

#include "locks/locks.h"
#include "recorder/recorder.h"

#include <mutex>

namespace anymps::observer {
namespace {

struct Checked {
  Mutex mutex;
  std::string first;
  uint32_t site = 0;
  bool any = false, same = true;
};
Checked& checked() {
  static auto* the_checked = new Checked;
  return *the_checked;
}

}  // namespace

void waited() {
  nonblocking::waited();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.any = false;
}

void note_checked(const Operator& op) {
  if (!op.checks_indices) {
    return;
  }
  const uint32_t here = current_place();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.same = !c.any || (c.same && c.site == here);
  c.first = c.any ? c.first : op.rule.name;
  c.site = here;
  c.any = true;
}

std::pair<std::string, uint32_t> take_checked() {
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  const bool any = std::exchange(c.any, false);
  return any ? std::make_pair(c.first, c.same ? c.site : 0) : std::make_pair(std::string(), uint32_t(0));
}

}  // namespace anymps::observer
