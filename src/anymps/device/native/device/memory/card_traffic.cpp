// Two counts for all threads: passages, and uses that rely on something.
#include "device/memory/card_traffic.h"

#include "recorder/recorder.h"

#include <atomic>
#include <cstdint>
#include <thread>

namespace anymps::card_traffic {
namespace {

constexpr uint64_t kBegun = uint64_t(1) << 16;

// How many passages have begun, times kBegun, and how many of them have not ended: one number, changed in one order for all.
std::atomic<uint64_t> passages{0};
std::atomic<int> uses{0};     // that rely on something
std::atomic<int> waiting{0};  // for these

struct OfThread {
  int passages = 0, uses = 0;  // around each other
  bool relies = false;
  bool began_alone = false;
  uint64_t number = 0;  // of the outermost passage
};
thread_local OfThread mine;

}  // namespace

void Passage::begin() {
  if (mine.passages++ == 0) {
    const uint64_t before = passages.fetch_add(kBegun + 1);
    mine.began_alone = before % kBegun == 0;
    mine.number = before / kBegun + 1;
  }
}

void Passage::end() {
  if (--mine.passages == 0) {
    passages.fetch_sub(1);
  }
}

bool has_been_alone() {
  // Written, not only read: a passage that begins after this has the order to see what came before it.
  return mine.passages > 0 && mine.began_alone && passages.fetch_add(0) / kBegun == mine.number;
}

Use::Use() {
  ++mine.uses;
}

Use::~Use() {
  if (--mine.uses == 0 && mine.relies) {
    mine.relies = false;
    uses.fetch_sub(1);
  }
}

bool rely() {
  if (mine.uses == 0 || waiting.load(std::memory_order_relaxed) != 0) {
    return false;
  }
  if (!mine.relies) {
    mine.relies = true;
    uses.fetch_add(1);
  }
  return true;
}

void wait_for_uses() {
  if (mine.relies || uses.load() == 0) {
    return;  // a kernel that calls operators on mps itself would wait for its own end
  }
  const WithoutGil others_may_run;
  ++waiting;
  while (uses.load() != 0) {
    std::this_thread::yield();
  }
  --waiting;
}

}  // namespace anymps::card_traffic
