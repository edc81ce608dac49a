// A pool of threads that grows to what launches ask for.
#include "pool.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <thread>
#include <unistd.h>

#include "guard.h"

namespace anymps_rt {
namespace {

// The pool: as many workers as a launch asks for, less the calling thread, which works too.
class Pool {
 public:
  void run(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*)) {
    const std::lock_guard<std::mutex> one(turn_);
    workers = std::min(workers, kMostPoolThreads + 1);
    grow(workers - 1);
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
  void grow(unsigned count) {
    for (; threads_ < count; ++threads_) {
      const sigset_t ours = own_signals();
      sigset_t others, before;
      sigfillset(&others);
      for (int number = 1; number < NSIG; ++number) {
        if (sigismember(&ours, number) == 1) sigdelset(&others, number);
      }
      pthread_sigmask(SIG_SETMASK, &others, &before);  // Ctrl-C and the like are for the threads of Python
      std::thread thread([this] { serve(); });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      add_pool_thread(thread.native_handle());
      thread.detach();
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

Pool* the_pool = nullptr;
pid_t pool_process = 0;

Pool& pool() {
  static std::mutex making;
  const std::lock_guard<std::mutex> lock(making);
  if (the_pool == nullptr || pool_process != getpid()) {  // a forked child has none of its parent's threads
    forget_pool_threads();
    the_pool = new Pool;
    pool_process = getpid();
  }
  return *the_pool;
}

}  // namespace

void share_work(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*)) {
  pool().run(work, context, workers, meanwhile);
}

}  // namespace anymps_rt
