// What keeps a kernel from ending the process: its faults, and a Ctrl-C, jump out of it to the thread that ran it.
#pragma once

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <pthread.h>

namespace anymps_rt {

// Whether a jump out of a handler must restore which signals are blocked: that takes a call of the system, and our handlers
// block none. Those of ThreadSanitizer, around ours, block all.
#if defined(__SANITIZE_THREAD__)
constexpr int kSaveMask = 1;
#else
constexpr int kSaveMask = 0;
#endif

// What can be stopped from outside: one launch.
struct Stoppable {
  std::atomic<bool> stopped{false};
  std::atomic<int> why{0};  // SIGINT, SIGXCPU where it ran too long, or kRaised
  pthread_t caller{};
  double since = 0;
  bool asks = false;  // whether its caller is the thread on which Python runs handlers of signals
  std::atomic<bool> asking{false};  // that it does so now
  std::atomic<double> asked{0};     // when it last did
  const void* code = nullptr;       // the kernel
  std::atomic<uintptr_t> code_low{0}, code_high{0};  // the memory that it is in, once it runs for long
};

// The guard of one OS thread. Between `guarded = 1` and `guarded = 0` a signal of the kernel jumps to `out`.
class Guard {
 public:
  // That of this OS thread, made at the first call.
  static Guard& mine();
  ~Guard();

  sigjmp_buf out;
  Stoppable* of = nullptr;  // the launch that this thread works for
  char* base = nullptr;     // where that begins on the thread's own stack
  volatile sig_atomic_t guarded = 0;
  int caught = 0;  // the signal
  uintptr_t address = 0;

 private:
  Guard();
  void* own_stack_ = nullptr;  // for the handlers: a fiber's may be what overflowed
};

// In the place of a signal: the system gives no memory for the stacks of a group's threads.
constexpr int kNoStacks = 1001;
// Ends the launch that this thread works for.
[[noreturn]] void give_up(int why);

// Where a launch begins and ends, on the thread that called it. A Ctrl-C in between reaches its threads, too; Python's own
// handler notes it, and raises it when the launch is over. One that runs for longer than `anymps_rt_limit` is stopped, too.
class Watch {
 public:
  explicit Watch(Stoppable& launch);
  ~Watch();

 private:
  Stoppable& launch_;
};

// For the caller of a launch that waits for others: has Python run handlers of signals, and stops the launch if one raises.
void ask_meanwhile(Stoppable& launch);

// Starts a thread that blocks all signals but these: Ctrl-C and the like are for the threads of Python. False where this
// machine, or a limit, has no room for another one.
bool start_thread(void* (*work)(void*), void* context, const sigset_t& taken, pthread_t& made);

// The signals that a thread of the pool must not block, and where it says that it is there: one after the other does.
constexpr unsigned kMostPoolThreads = 1024;
sigset_t own_signals();
void add_pool_thread(pthread_t thread);

// Calls `work(context)` on up to `workers` threads, this one included (pool.cpp). Returns when all calls have.
// `meanwhile(context)` is called from time to time while this thread waits for the others.
void share_work(void (*work)(void*), void* context, unsigned workers, void (*meanwhile)(void*));

}  // namespace anymps_rt

extern "C" double anymps_rt_limit;  // seconds that a launch may take; 0: as long as it likes
