// Events: the virtual device has run everything before `record` returns, so that a recorded event is always complete.
#include "device/backend/events.h"

#include "device/memory/delayed.h"
#include "device/errors/faults.h"
#include "device/errors/fork.h"
#include "device/memory/waits.h"
#include "rules/rules.h"
#include "locks/locks.h"
#include "recorder/recorder.h"

#include <anymps/release.h>
#include <c10/util/Exception.h>

#include <chrono>
#include <mutex>
#include <set>
#include <unordered_map>

namespace anymps::events {
namespace {

struct Event : EventUse {
  explicit Event(bool with_timing = false) {
    timing = with_timing;
  }
  int64_t time_ns = 0;
  uint64_t copies = 0;  // that had started when it was recorded
};

struct Pool {
  Mutex mutex;
  std::unordered_map<uint32_t, Event> in_use;
  std::set<uint32_t> free;
  uint32_t next = 1;  // ids start at 1 (torch 2.13, MPSEvent.mm)

  Event& at(uint32_t id) {
    const auto found = in_use.find(id);
    TORCH_CHECK(id != 0 && found != in_use.end(), "Invalid Event ID: ", id);
    return found->second;
  }
};

int64_t host_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Pool& pool() {
  static Pool* the_pool = new Pool;
  return *the_pool;
}

void note_wait(uint64_t copies) {
  const int64_t start = now_ns();
  wait_for_gpu();
  mark_wait("anymps::event_wait", start, now_ns(), Wait::Event);
  nonblocking::waited(copies);
  delayed::check();
}

}  // namespace

uint32_t acquire(bool timing) {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  uint32_t id = 0;
  if (p.free.empty()) {
    id = p.next++;
  } else {
    id = *p.free.begin();
    p.free.erase(p.free.begin());
  }
  p.in_use[id] = Event(timing);
  return id;
}

void release(uint32_t id) {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.at(id);
  p.in_use.erase(id);
  p.free.insert(id);
}

void record(uint32_t id) {
  enter_device();
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  Event& event = p.at(id);
  event.recorded = true;
  event.measured = event.synchronized = false;
  event.time_ns = host_ns();
  event.copies = nonblocking::started();
}

void wait(uint32_t id) {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  p.at(id);
}

void synchronize(uint32_t id) {
  uint64_t copies = 0;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    Event& event = p.at(id);
    if (!event.recorded) {
      return;
    }
    event.synchronized = true;
    copies = event.copies;
  }
  note_wait(copies);
}

bool query(uint32_t id) {
  Event event;
  {
    Pool& p = pool();
    std::lock_guard<std::mutex> lock(p.mutex);
    event = p.at(id);
  }
  if (event.recorded) {
    nonblocking::waited(event.copies);  // whoever asks until the answer is yes has waited
  }
  return event.recorded;
}

double elapsed_ms(uint32_t start, uint32_t end) {
  Pool& p = pool();
  Event first, last;
  {
    std::lock_guard<std::mutex> lock(p.mutex);
    first = p.at(start);
    last = p.at(end);
    p.at(end).measured = true;
  }
  meet_event_hazard(last);  // raises, up to torch 2.14
  // Texts of torch 2.11 to 2.15, MPSEvent.mm.
  const bool timing = first.timing && last.timing, recorded = first.recorded && last.recorded;
  TORCH_CHECK(timing && (recorded || release::event_timing_safe), "Events were not created with argument 'enable_timing=True'");
  TORCH_CHECK(recorded, "Both events must be recorded before calculating elapsed time");
  const bool in_order = release::event_timing_safe ? last.time_ns >= first.time_ns : last.time_ns > first.time_ns;
  TORCH_CHECK(in_order, "End event ", end, " was not recorded after start event ", start);
  note_wait(nonblocking::started());  // it waits for the whole stream (torch 2.13, MPSEvent.mm)
  return static_cast<double>(last.time_ns - first.time_ns) * 1e-6;
}

}  // namespace anymps::events
