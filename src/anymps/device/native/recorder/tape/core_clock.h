// How long a thread that could have run did not, as other programs had the cores: its wall clock beside its processor time.
#pragma once

#include <cstdint>

namespace anymps {

// Of one thread. A reading is a call of the system, so only long gaps between calls are looked at: what is shorter was not
// interrupted, as a scheduler lets others run for milliseconds.
class CoreClock {
 public:
  // A call begins: how many ns the thread was kept waiting since its call before.
  int64_t begins(int64_t now) {
    const int64_t since = now - last_;
    last_ = now;
    return since > kLong ? delay(now, since) : 0;
  }
  // It ends. `counts`: how many ns it was kept waiting in it.
  int64_t ends(int64_t now, bool counts) {
    const int64_t since = now - last_;
    last_ = now;
    // Read anew after each long call, and now and then, so that the next gap begins near where it was read.
    return since > kLong || now - read_at_ > kStale ? delay(now, counts ? since : 0) : 0;
  }

 private:
  static constexpr int64_t kLong = 100'000;     // ns
  static constexpr int64_t kStale = 1'000'000;  // ns; a reading takes about a microsecond
  int64_t delay(int64_t now, int64_t most);

  int64_t last_ = 0;
  int64_t read_at_ = 0;
  int64_t processor_ = 0;  // ns, at the last reading
  int64_t waits_ = -1;     // how often the thread had gone to sleep by then; -1: never read
};

}  // namespace anymps
