// Events: the virtual device has run everything before `record` returns, so that a recorded event is always complete.
#include "device/backend/events.h"

#include "device/errors/refusals.h"
#include "device/errors/fork.h"
#include "device/memory/waits.h"
#include "rules/rules.h"
#include "locks/locks.h"
#include "recorder/recorder.h"
#include "device/memory/memory.h"

#include <anymps/release.h>
#include <c10/util/Exception.h>

#include <atomic>
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

// Calls body(event) for the event of that id, and gives what it is then.
template <class Body>
Event with_event(uint32_t id, const Body& body) {
  Pool& p = pool();
  std::lock_guard<std::mutex> lock(p.mutex);
  body(p.at(id));
  return p.at(id);
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
  with_event(id, [](Event& event) {
    event.recorded = true;
    event.measured = event.synchronized = false;
    event.time_ns = host_ns();
    event.copies = nonblocking::started();
  });
}

void wait(uint32_t id) {
  with_event(id, [](Event&) {});
}

void synchronize(uint32_t id) {
  const Event now = with_event(id, [](Event& event) { event.synchronized |= event.recorded; });
  if (now.recorded) {
    note_wait(now.copies);
  }
}

bool query(uint32_t id) {
  const Event now = with_event(id, [](Event&) {});
  if (now.recorded) {
    nonblocking::waited(now.copies);  // whoever asks until the answer is yes has waited
  }
  return now.recorded;
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
  meet_hazard(event_hazard(last), "torch.mps.Event.elapsed_time");  // raises, up to torch 2.14
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

// The pool of streams and each thread's current one: numbers alone, since there is nothing to wait for.
namespace anymps::streams {
namespace {

constexpr int64_t kPool = 32;  // torch 2.15, ATen/mps/MPSStream.h

thread_local int64_t current_id = 0;

c10::Stream stream(int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, kMpsDevice, id);
}

}  // namespace

c10::Stream current() {
  return stream(current_id);
}

void set_current(int64_t id) {
  current_id = by_id(id).id();
}

c10::Stream next() {
  static std::atomic<uint32_t> handed_out{0};
  return stream(1 + handed_out++ % kPool);
}

c10::Stream by_id(int64_t id) {
  TORCH_CHECK(id >= 0 && id <= kPool, "stream_id=", id, " not found");  // torch 2.15, MPSStream.mm
  return stream(id);
}

}  // namespace anymps::streams
