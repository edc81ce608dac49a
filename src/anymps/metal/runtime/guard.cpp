// Signals of kernels: handlers that jump only if their thread runs a kernel, and else ask what was there before them.
#include "guard.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

#include "ask.h"
#include "fibers.h"

double anymps_rt_limit = 0;

namespace anymps_rt {
namespace {

constexpr size_t kSignalStack = 64 << 10;

__attribute__((tls_model("initial-exec"))) thread_local Guard* the_guard = nullptr;
struct Owner {
  Guard* guard = nullptr;
  ~Owner() {
    the_guard = nullptr;
    delete guard;
  }
};
thread_local Owner owner;

constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};  // the last two are traps
struct sigaction former[65];  // what was there before ours, the last time
struct sigaction first[65];   // and the first time
bool known[65];
std::mutex installing;
__attribute__((tls_model("initial-exec"))) thread_local bool passing = false;

// Asks who was there before. Should they ask us in turn, as what they found there was ours, it is for the very first one.
void pass_on(int number, siginfo_t* info, void* context) {
  struct Passing {
    const bool was = passing;
    Passing() { passing = true; }
    ~Passing() { passing = was; }
  } const now;
  const struct sigaction& before = now.was ? first[number] : former[number];
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the instruction runs again, and this time nobody is in the way
  }
}

int tick_signal() {
  return SIGRTMAX - 4;
}

void block_ticks(int how) {
  sigset_t ticks;
  sigemptyset(&ticks);
  sigaddset(&ticks, tick_signal());
  pthread_sigmask(how, &ticks, nullptr);
}

// Out of the kernel; also out of a tick, which has blocked the next one.
[[noreturn]] void leave(Guard& guard) {
  block_ticks(SIG_UNBLOCK);
  siglongjmp(guard.out, 1);
}

void on_fault(int number, siginfo_t* info, void* context) {
  Guard* const here = the_guard;
  if (here == nullptr || here->guarded == 0) {
    pass_on(number, info, context);
    return;
  }
  here->caught = number;
  // The processor tells no address where one is not aligned, or lies outside what it can address (x86: not canonical).
  const bool unaligned = number == SIGBUS ? info->si_code == BUS_ADRALN : number == SIGSEGV && info->si_code == SI_KERNEL;
  here->address = unaligned ? ~uintptr_t(0) : reinterpret_cast<uintptr_t>(info->si_addr);
  leave(*here);
}

// Those of the pool. Read by handlers of signals, which cannot wait for a lock, and by the watcher, while others are added.
std::atomic<pthread_t> pool_threads[kMostPoolThreads];
std::atomic<unsigned> pool_count{0};

// Where a signal came in between.
void interrupted(const void* context, uintptr_t& code, uintptr_t& stack) {
  const mcontext_t& at = static_cast<const ucontext_t*>(context)->uc_mcontext;
#if defined(__x86_64__)
  code = static_cast<uintptr_t>(at.gregs[REG_RIP]);
  stack = static_cast<uintptr_t>(at.gregs[REG_RSP]);
#else
  code = at.pc;
  stack = at.sp;
#endif
}

// Whether that is the kernel's own code, which holds no lock. Nothing else is interrupted: not a `malloc` of the runtime's or
// of the checker's. Who wants the kernel to stop asks again.
bool is_in_kernel(const Stoppable& launch, uintptr_t code) {
  return code >= launch.code_low.load() && code < launch.code_high.load();
}

void on_stop(int, siginfo_t*, void* context) {
  Guard* const here = the_guard;
  if (here == nullptr || here->guarded == 0 || !here->of->stopped.load()) {
    return;
  }
  uintptr_t code, stack;
  interrupted(context, code, stack);
  if (is_in_kernel(*here->of, code)) {
    here->caught = here->of->why.load();
    leave(*here);
  }
}

int stop_signal() {
  return SIGRTMAX - 3;
}

// Has all threads that work for a launch jump out of it; those of others look, and go on. The launch must not end meanwhile:
// it is the caller's own, or the watcher holds its lock.
void stop(Stoppable& launch, int why) {
  launch.why.store(why);
  launch.stopped.store(true);
  for (unsigned i = 0; i < pool_count.load(); ++i) {
    pthread_kill(pool_threads[i].load(), stop_signal());
  }
  if (pthread_equal(launch.caller, pthread_self()) == 0) {
    pthread_kill(launch.caller, stop_signal());
  }
}

double now();
std::atomic<double> last_interrupt{-1};  // when a Ctrl-C came that the watcher is to pass on

void on_interrupt(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  pass_on(number, info, context);
  Guard* const here = the_guard;
  if (here == nullptr || here->guarded == 0) {
    last_interrupt.store(now());
    errno = saved;
    return;
  }
  stop(*here->of, SIGINT);
  errno = saved;
  on_stop(number, info, context);
}

// What a launch leaves on its thread, put aside while handlers in Python run, which may launch kernels themselves.
class Aside {
 public:
  explicit Aside(Guard& guard) : guard_(guard), of_(guard.of), base_(guard.base), fibers_(Fibers::set_aside()) {
    std::memcpy(&out_, &guard.out, sizeof(out_));
    of_->asking.store(true);
  }
  ~Aside() {
    Fibers::put_back(fibers_);
    std::memcpy(&guard_.out, &out_, sizeof(out_));
    guard_.of = of_;
    guard_.base = base_;
    of_->asked.store(now());
    of_->asking.store(false);
  }

 private:
  Guard& guard_;
  Stoppable* const of_;
  char* const base_;
  Fibers::Aside fibers_;
  sigjmp_buf out_;
};

// Comes to the caller of a long launch from time to time. Only the kernel's own code is interrupted for it. Handlers run on the thread's own stack, below what is in use there: a fiber's has no room for them. This handler is
// not on the stack for signals, so that others that come meanwhile have that.
// Ticks queue up while the thread has no core. Each waits for the one before to return: one within the other, they would need
// more than a fiber's stack has.
void on_tick(int, siginfo_t*, void* context) {
  constexpr uintptr_t kOwn = 16 << 20;
  Guard* const here = the_guard;
  if (here == nullptr || here->guarded == 0) {
    return;
  }
  Stoppable* const launch = here->of;
  uintptr_t code, stack;
  interrupted(context, code, stack);
  if (!launch->asks || !is_in_kernel(*launch, code)) {
    return;
  }
  const bool own = reinterpret_cast<uintptr_t>(here->base) - stack < kOwn;
  char* const top = own ? nullptr : Fibers::below();
  if (!own && top == nullptr) {
    return;
  }
  const int saved = errno;
  here->guarded = 0;
  bool well;
  {
    const Aside aside(*here);
    block_ticks(SIG_UNBLOCK);  // for launches of Python's handlers
    well = own ? ask_python() : ask_python_on(top);
    block_ticks(SIG_BLOCK);
  }
  if (!well) {
    stop(*launch, kRaised);
  }
  errno = saved;
  here->guarded = 1;
  if (launch->stopped.load()) {  // or a Ctrl-C came meanwhile, or the time is over
    here->caught = launch->why.load();
    leave(*here);
  }
}

void install(int number, void (*handler)(int, siginfo_t*, void*), int flags = SA_ONSTACK | SA_NODEFER) {
  struct sigaction now{};
  sigaction(number, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handler) {
    return;
  }
  if (number == SIGINT && (now.sa_flags & SA_SIGINFO) == 0 && (now.sa_handler == SIG_IGN || now.sa_handler == SIG_DFL)) {
    return;  // nobody is to be told, or the process is to end
  }
  former[number] = now;
  if (!known[number]) {
    first[number] = now;
    known[number] = true;
  }
  struct sigaction ours{};
  ours.sa_sigaction = handler;
  ours.sa_flags = SA_SIGINFO | flags;
  sigemptyset(&ours.sa_mask);
  sigaction(number, &ours, nullptr);
}

double now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Others may have put theirs in our place. To look takes as long as a small launch, so not each of them does. One that takes
// longer is looked after by the watcher.
constexpr double kLooks = 0.01;
std::atomic<double> looked{-1};

void install_handlers(double time) {
  if (time - looked.load(std::memory_order_relaxed) < kLooks) {
    return;
  }
  const std::lock_guard<std::mutex> lock(installing);
  for (const int number : kFaults) {
    install(number, on_fault);
  }
  install(stop_signal(), on_stop);
  install(tick_signal(), on_tick, SA_RESTART);
  install(SIGINT, on_interrupt);
  looked.store(time, std::memory_order_relaxed);
}

// Launches that run, and the thread that looks after their time. It is there from the first launch on.
struct Watcher {
  std::mutex mutex;
  std::vector<Stoppable*> launches;
  bool started = false;
};
Watcher* const watcher = new Watcher;  // never destroyed: its thread may outlive `main`

// The memory that a kernel's code is in: of its library, or where LLVM has put it.
void find_code(Stoppable& launch) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "re");
  if (maps == nullptr) return;
  const auto code = reinterpret_cast<uintptr_t>(launch.code);
  char* line = nullptr;
  size_t room = 0;
  unsigned long low, high;
  while (getline(&line, &room, maps) > 0) {
    if (std::sscanf(line, "%lx-%lx", &low, &high) == 2 && code >= low && code < high) {
      launch.code_low.store(low);
      launch.code_high.store(high);
      break;
    }
  }
  std::free(line);
  std::fclose(maps);
}

constexpr double kAsks = 0.1;  // seconds between two looks for handlers

// Whether it has been sent a tick, which it may not have been able to follow.
bool tick(Stoppable& launch) {
  if (!launch.asks || launch.asking.load() || now() - launch.asked.load() < kAsks) {
    return false;
  }
  pthread_kill(launch.caller, tick_signal());
  return true;
}

void* watch(void*) {
  for (bool hurry = false;;) {
    usleep(hurry ? 2000 : 100000);
    hurry = false;
    const std::lock_guard<std::mutex> lock(watcher->mutex);
    if (!watcher->launches.empty()) {
      install_handlers(now());
    }
    for (Stoppable* const launch : watcher->launches) {
      if (launch->code_high.load() == 0) {
        find_code(*launch);
      }
      if (launch->stopped.load()) {
        stop(*launch, launch->why.load());  // threads may have been elsewhere
      } else if (launch->since < last_interrupt.load()) {
        stop(*launch, SIGINT);
      } else if (anymps_rt_limit > 0 && now() - launch->since > anymps_rt_limit) {
        stop(*launch, SIGXCPU);
      }
      hurry = launch->stopped.load() || tick(*launch) || hurry;
    }
  }
}

// Where there is no room for its thread, a launch has no limit of time, and the next one tries again.
bool start_watcher() {
  sigset_t none;
  sigemptyset(&none);
  pthread_t thread;
  return start_thread(watch, nullptr, none, thread);
}

}  // namespace

void give_up(int why) {
  Guard& here = Guard::mine();
  here.caught = why;
  leave(here);
}

Guard& Guard::mine() {
  if (the_guard == nullptr) {
    owner.guard = new Guard();
    the_guard = owner.guard;
  }
  return *the_guard;
}

Guard::Guard() {
  stack_t now{};
  sigaltstack(nullptr, &now);
  if ((now.ss_flags & SS_DISABLE) != 0) {
    void* memory = mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      own_stack_ = memory;
      stack_t ours{};
      ours.ss_sp = memory;
      ours.ss_size = kSignalStack;
      sigaltstack(&ours, nullptr);
    }
  }
}

Guard::~Guard() {
  if (own_stack_ != nullptr) {
    stack_t off{};
    off.ss_flags = SS_DISABLE;
    sigaltstack(&off, nullptr);
    munmap(own_stack_, kSignalStack);
  }
}

Watch::Watch(Stoppable& launch) : launch_(launch) {
  launch.caller = pthread_self();
  launch.since = now();
  launch.asked.store(launch.since, std::memory_order_relaxed);
  launch.asks = is_first_thread();
  {
    const std::lock_guard<std::mutex> lock(watcher->mutex);
    watcher->started = watcher->started || start_watcher();
    watcher->launches.push_back(&launch);
  }
  install_handlers(launch.since);
}

Watch::~Watch() {
  const std::lock_guard<std::mutex> lock(watcher->mutex);
  auto& all = watcher->launches;
  all.erase(std::find(all.begin(), all.end(), &launch_));
}

void ask_meanwhile(Stoppable& launch) {
  if (!launch.asks) {
    return;
  }
  Guard& here = Guard::mine();
  bool well;
  {
    const Aside aside(here);
    well = ask_python();
  }
  if (!well) {
    stop(launch, kRaised);
  }
}

sigset_t own_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kFaults) sigaddset(&set, number);
  sigaddset(&set, stop_signal());
  return set;
}

bool start_thread(void* (*work)(void*), void* context, const sigset_t& taken, pthread_t& made) {
  sigset_t others, before;
  sigfillset(&others);
  for (int number = 1; number < NSIG; ++number) {
    if (sigismember(&taken, number) == 1) sigdelset(&others, number);
  }
  pthread_sigmask(SIG_SETMASK, &others, &before);
  const bool started = pthread_create(&made, nullptr, work, context) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (started) pthread_detach(made);
  return started;
}

void add_pool_thread(pthread_t thread) {
  const unsigned number = pool_count.load();
  pool_threads[number].store(thread);
  pool_count.store(number + 1);
}

}  // namespace anymps_rt
