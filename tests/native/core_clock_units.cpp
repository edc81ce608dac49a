// Tests of how long a thread was kept from a core: by its own processor time, whatever else runs on the machine.
#include "check.h"
#include "recorder/tape/core_clock.h"

#include <time.h>

#include <chrono>

using anymps::CoreClock;

namespace {

int64_t wall() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int64_t processor() {
  timespec ran{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran);
  return int64_t(ran.tv_sec) * 1'000'000'000 + ran.tv_nsec;
}

}  // namespace

#ifdef __linux__
// Far less than the scheduler's tick: the clock of the wall alone is looked at while it works, as reading the thread's own
// would make the system count what it has run.
TEST(work_of_less_than_a_tick_is_no_delay) {
  CoreClock clock;
  clock.begins(wall());
  for (int round = 0; round < 40; ++round) {
    const int64_t ran = processor();
    const int64_t start = wall();
    clock.ends(start, false);
    int64_t now = start;
    while ((now = wall()) - start < 500'000) {
    }
    const int64_t delayed = clock.begins(now);
    const int64_t worked = processor() - ran;
    // What is left of the time that passed is what the thread ran, but for the readings themselves.
    const int64_t off = (now - start - delayed) - worked;
    EXPECT(off > -200'000 && off < 200'000);
  }
}
#endif

TEST(a_short_gap_is_not_looked_at) {
  CoreClock clock;
  const int64_t start = wall();
  clock.begins(start);
  EXPECT_EQUAL(clock.ends(start + 1'000, true), 0);
  EXPECT_EQUAL(clock.begins(start + 2'000), 0);
}

int main(int count, char** names) {
  return check::run(count, names);
}
