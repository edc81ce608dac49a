// A pool of threads that grows to what launches ask for.
#include "guard.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace anymps_rt {
namespace {

// The pool: as many workers as a launch asks for, less the calling thread, which works too.
class Pool {
 public:
  void run(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*)) {
    const std::lock_guard<std::mutex> one(turn_);
    grow(std::min(workers - 1, kMostPoolThreads));
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work_ = work;
      context_ = context;
      wanted_ = workers - 1;
      busy_ = 0;
      ++round_;
    }
    wake_.notify_all();
    work(context);
    std::unique_lock<std::mutex> lock(mutex_);
    work_ = nullptr;  // who has not come yet need not come any more
    while (!done_.wait_for(lock, std::chrono::milliseconds(100), [&] { return busy_ == 0; })) {
      lock.unlock();
      meanwhile(context);
      lock.lock();
    }
  }

 private:
  // As far as there is room for threads: fewer do the work as well, if need be the calling one alone.
  void grow(unsigned count) {
    const auto begin = [](void* pool) -> void* {
      static_cast<Pool*>(pool)->serve();
      return nullptr;
    };
    for (pthread_t thread; threads_ < count && start_thread(begin, this, own_signals(), thread); ++threads_) {
      add_pool_thread(thread);
    }
  }
  void serve() {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (work_ == nullptr || wanted_ == 0) {
        continue;
      }
      --wanted_;
      ++busy_;
      void (*const work)(void*) = work_;
      void* const context = context_;
      lock.unlock();
      work(context);
      lock.lock();
      if (--busy_ == 0) {
        done_.notify_all();
      }
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable wake_, done_;
  void (*work_)(void*) = nullptr;
  void* context_ = nullptr;
  uint64_t round_ = 0;
  unsigned wanted_ = 0, busy_ = 0, threads_ = 0;
};

// Never destroyed: its threads may outlive `main`. A forked child launches nothing (device/errors/fork.h of the core).
Pool& pool() {
  static Pool* const the_pool = new Pool;
  return *the_pool;
}

}  // namespace

void share_work(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*)) {
  pool().run(work, context, workers, meanwhile);
}

}  // namespace anymps_rt
