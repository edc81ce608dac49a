// Told on Linux alone. The processor time is that of the thread's clock: getrusage knows it as of the last tick of the
// scheduler, so that what lies between two ticks would look as if the thread had not run at all.
#include "recorder/tape/core_clock.h"

#include <sys/resource.h>
#include <time.h>

#include <algorithm>

namespace anymps {

int64_t CoreClock::delay(int64_t now, int64_t most) {
#ifdef RUSAGE_THREAD
  rusage used{};
  timespec ran{};
  if (getrusage(RUSAGE_THREAD, &used) != 0 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ran) != 0) {
    return 0;
  }
  const int64_t processor = int64_t(ran.tv_sec) * 1'000'000'000 + ran.tv_nsec;
  // A thread that went to sleep waited for something of its own: a disk, another thread, the time that it asked for.
  const bool slept = used.ru_nvcsw != waits_;
  const int64_t away = (now - read_at_) - (processor - processor_);
  const bool known = waits_ >= 0;
  read_at_ = now;
  processor_ = processor;
  waits_ = used.ru_nvcsw;
  return known && !slept ? std::clamp<int64_t>(away, 0, most) : 0;
#else
  static_cast<void>(now);
  static_cast<void>(most);
  return 0;
#endif
}

}  // namespace anymps
