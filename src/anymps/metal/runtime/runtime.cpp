// The runtime of Metal kernels: groups of threads as fibers, SIMD groups, a pool of workers, and a guard around them.
//
// One worker runs one threadgroup; each GPU thread of it is a fiber with a stack of its own. The fibers of a SIMD group run
// until each of them waits. Then the SIMD call with the lowest site among those waited at is done, with exactly the lanes
// that wait there: so lanes that took different branches meet again. A barrier opens when every thread that still runs is
// there. A lane that has to wait hands over to the next one itself; no scheduler stands between.
//
// A fault of a kernel (bad access, division by zero) jumps out of the whole group to its worker, which reports it.
#include <msl/runtime.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <csetjmp>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

using anymps_rt::Box;
using anymps_rt::Group;
using anymps_rt::Kernel;
using anymps_rt::Launch;
using anymps_rt::Resolve;
using anymps_rt::Thread;

namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kLanes = 32;
constexpr size_t kSharedBytes = 64 << 10;  // twice what Metal gives: what exceeds 32 KiB is refused before a launch
constexpr size_t kStack = 64 << 10;
constexpr size_t kPage = 4096;
constexpr size_t kStride = kStack + kPage;  // one page below each stack stays closed

// What a launch came to; read by Python.
struct Report {
  int signal;  // 0: well
  int has_thread;
  unsigned position[3];  // of the thread in the grid, if it is known
  uintptr_t address;
};

// One launch, shared by the workers that run it.
struct Job {
  const Kernel* kernel;
  Launch launch;
  uint64_t pieces;                  // chunks of a plain kernel, else groups
  uint64_t tiles[3];                // of a plain kernel: how many boxes along each axis
  unsigned tile[3];
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stopped{false};
  std::mutex mutex;
  Report report{};
  pthread_t caller{};
};

extern "C" void anymps_rt_switch(void** from, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.type anymps_rt_switch,@function
anymps_rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size anymps_rt_switch,.-anymps_rt_switch
)");
constexpr size_t kSaved = 6;
void* first_frame(char* top, void (*entry)()) {
  auto* words = reinterpret_cast<uintptr_t*>(top) - (kSaved + 2);
  std::memset(words, 0, kSaved * sizeof(uintptr_t));
  words[kSaved] = reinterpret_cast<uintptr_t>(entry);
  words[kSaved + 1] = 0;  // where a return address of `entry` would stand
  return words;
}
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.type anymps_rt_switch,%function
anymps_rt_switch:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size anymps_rt_switch,.-anymps_rt_switch
)");
void* first_frame(char* top, void (*entry)()) {
  auto* words = reinterpret_cast<uintptr_t*>(top) - 22;
  std::memset(words, 0, 22 * sizeof(uintptr_t));
  words[11] = reinterpret_cast<uintptr_t>(entry);  // x30
  return words;
}
#else
#error "anymps runs Metal kernels on x86-64 and aarch64 only"
#endif

// What one OS thread needs to run groups; made at its first launch.
class Worker {
 public:
  ~Worker() {
    if (stacks_ != nullptr) munmap(stacks_, kMaxThreads * kStride);
    if (own_signal_stack_ != nullptr) {
      stack_t off{};
      off.ss_flags = SS_DISABLE;
      sigaltstack(&off, nullptr);
      munmap(own_signal_stack_, kSignalStack);
    }
  }

  // Runs pieces of the job until none is left; a fault ends the job.
  void work(Job& job);

  void block_at_barrier() {
    const unsigned s = current / kLanes;
    at_barrier_[s] |= 1u << (current % kLanes);
    hand_over(s);
  }
  void block_at_simd(void* slot, Resolve resolve, unsigned long site) {
    const unsigned s = current / kLanes;
    slots_[current] = slot;
    resolves_[current] = resolve;
    sites_[current] = site;
    at_simd_[s] |= 1u << (current % kLanes);
    hand_over(s);
  }
  [[noreturn]] void run_fiber();

  unsigned current = 0;
  alignas(64) char shared[kSharedBytes];
  sigjmp_buf out;
  volatile sig_atomic_t guarded = 0;
  int caught = 0;
  uintptr_t address = 0;

 private:
  static constexpr size_t kSignalStack = 64 << 10;

  void prepare_signals();
  void run_group(const Kernel& kernel, const Group& group);
  void run_plain(const Job& job, uint64_t piece);
  void hand_over(unsigned s);
  void resolve(unsigned s);
  char* stack_top(unsigned fiber);

  bool fibers_ = false;  // whether a group of fibers runs, so that `current` is a thread
  const Kernel* kernel_ = nullptr;
  const Group* group_ = nullptr;
  unsigned simdgroups_ = 0;
  unsigned ready_ = 0;  // SIMD groups with lanes that can run
  unsigned runnable_[kLanes];
  unsigned at_simd_[kLanes];
  unsigned at_barrier_[kLanes];
  void* slots_[kMaxThreads];
  Resolve resolves_[kMaxThreads];
  unsigned long sites_[kMaxThreads];
  void* pointers_[kMaxThreads];  // of the stacks of fibers that wait
  void* main_ = nullptr;
  char* stacks_ = nullptr;
  unsigned opened_ = 0;  // stacks that can be written
  void* own_signal_stack_ = nullptr;
  bool signals_ready_ = false;
};

// Initial-exec: read at every SIMD call. The pointer is all that lies there.
__attribute__((tls_model("initial-exec"))) thread_local Worker* the_worker = nullptr;
struct WorkerOwner {
  Worker* worker = nullptr;
  ~WorkerOwner() {
    the_worker = nullptr;
    delete worker;
  }
};
thread_local WorkerOwner owner;

Worker& worker() {
  if (the_worker == nullptr) {
    owner.worker = new Worker();
    the_worker = owner.worker;
  }
  return *the_worker;
}

void start_fiber() {
  the_worker->run_fiber();
}

void Worker::run_fiber() {
  Thread thread{group_->launch, group_, {}, current};
  thread.local[0] = current % group_->size[0];
  thread.local[1] = current / group_->size[0] % group_->size[1];
  thread.local[2] = current / group_->size[0] / group_->size[1];
  kernel_->thread(thread);
  hand_over(current / kLanes);
  __builtin_unreachable();
}

char* Worker::stack_top(unsigned fiber) {
  if (stacks_ == nullptr) {
    void* memory = mmap(nullptr, kMaxThreads * kStride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      std::abort();
    }
    stacks_ = static_cast<char*>(memory);
  }
  for (; opened_ <= fiber; ++opened_) {
    mprotect(stacks_ + opened_ * kStride + kPage, kStack, PROT_READ | PROT_WRITE);
  }
  // Not all at the same offset of a page: they would share the same few sets of the cache.
  return stacks_ + (fiber + 1) * kStride - (fiber * 37 % 61) * 64;
}

void Worker::resolve(unsigned s) {
  unsigned long lowest = ~0ul;
  for (unsigned rest = at_simd_[s]; rest != 0; rest &= rest - 1) {
    const unsigned long site = sites_[s * kLanes + static_cast<unsigned>(__builtin_ctz(rest))];
    lowest = site < lowest ? site : lowest;
  }
  unsigned lanes = 0;
  Resolve first = nullptr;
  for (unsigned rest = at_simd_[s]; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<unsigned>(__builtin_ctz(rest));
    const unsigned fiber = s * kLanes + lane;
    if (sites_[fiber] == lowest && (first == nullptr || first == resolves_[fiber])) {
      first = resolves_[fiber];
      lanes |= 1u << lane;
    }
  }
  if (first != nullptr) {
    first(slots_ + s * kLanes, lanes);
  }
  at_simd_[s] &= ~lanes;
  runnable_[s] |= lanes;
}

// The running fiber waits, or is done: the next one runs. Returns when this one may go on.
void Worker::hand_over(unsigned s) {
  const unsigned self = current;
  for (;;) {
    if (runnable_[s] != 0) {
      const auto lane = static_cast<unsigned>(__builtin_ctz(runnable_[s]));
      runnable_[s] &= runnable_[s] - 1;
      current = s * kLanes + lane;
      if (current != self) {
        anymps_rt_switch(&pointers_[self], pointers_[current]);
      }
      return;
    }
    if (at_simd_[s] != 0) {
      resolve(s);
      continue;
    }
    ready_ &= ~(1u << s);
    if (ready_ == 0) {
      for (unsigned other = 0; other < simdgroups_; ++other) {  // the barrier opens
        runnable_[other] = at_barrier_[other];
        at_barrier_[other] = 0;
        ready_ |= static_cast<unsigned>(runnable_[other] != 0) << other;
      }
      if (ready_ == 0) {
        anymps_rt_switch(&pointers_[self], main_);  // all are done
      }
    }
    s = static_cast<unsigned>(__builtin_ctz(ready_));
  }
}

void Worker::run_group(const Kernel& kernel, const Group& group) {
  kernel_ = &kernel;
  group_ = &group;
  simdgroups_ = (group.threads + kLanes - 1) / kLanes;
  for (unsigned s = 0; s < simdgroups_; ++s) {
    const unsigned left = group.threads - s * kLanes;
    runnable_[s] = left >= kLanes ? ~0u : (1u << left) - 1;
    at_simd_[s] = at_barrier_[s] = 0;
  }
  ready_ = simdgroups_ == kLanes ? ~0u : (1u << simdgroups_) - 1;
  for (unsigned i = 0; i < group.threads; ++i) {
    pointers_[i] = first_frame(stack_top(i), start_fiber);
  }
  current = 0;
  runnable_[0] &= ~1u;
  fibers_ = true;
  anymps_rt_switch(&main_, pointers_[0]);
  fibers_ = false;
}

void Worker::run_plain(const Job& job, uint64_t piece) {
  Box box;
  for (unsigned axis = 0; axis < 3; ++axis) {
    const uint64_t index = piece % job.tiles[axis];
    piece /= job.tiles[axis];
    const uint64_t from = index * job.tile[axis];
    const uint64_t to = from + job.tile[axis];
    box.from[axis] = static_cast<unsigned>(from);
    box.to[axis] = static_cast<unsigned>(to < job.launch.grid[axis] ? to : job.launch.grid[axis]);
  }
  job.kernel->plain(job.launch, box);
}

void Worker::work(Job& job) {
  prepare_signals();
  Group group{&job.launch, {}, {}, 0};
  if (sigsetjmp(out, 0) == 0) {
    guarded = 1;
    while (!job.stopped.load(std::memory_order_relaxed)) {
      uint64_t piece = job.next.fetch_add(1, std::memory_order_relaxed);
      if (piece >= job.pieces) {
        break;
      }
      if (job.kernel->form == anymps_rt::Plain) {
        run_plain(job, piece);
        continue;
      }
      group.threads = 1;
      for (unsigned axis = 0; axis < 3; ++axis) {
        group.position[axis] = static_cast<unsigned>(piece % job.launch.groups[axis]);
        piece /= job.launch.groups[axis];
        const unsigned left = job.launch.grid[axis] - group.position[axis] * job.launch.group[axis];
        group.size[axis] = left < job.launch.group[axis] ? left : job.launch.group[axis];
        group.threads *= group.size[axis];
      }
      run_group(*job.kernel, group);
    }
    guarded = 0;
    return;
  }
  // A fault: the fibers of the group are left where they are.
  guarded = 0;
  const std::lock_guard<std::mutex> lock(job.mutex);
  if (job.report.signal == 0) {
    job.report.signal = caught;
    job.report.address = address;
    job.report.has_thread = fibers_ ? 1 : 0;
    if (fibers_) {
      const unsigned local[3] = {
          current % group.size[0], current / group.size[0] % group.size[1], current / group.size[0] / group.size[1]};
      for (unsigned axis = 0; axis < 3; ++axis) {
        job.report.position[axis] = group.position[axis] * job.launch.group[axis] + local[axis];
      }
    }
  }
  fibers_ = false;
  job.stopped.store(true, std::memory_order_relaxed);
}

// Signals. A handler jumps only if its thread runs a kernel; else what was there before it is asked.
constexpr int kFaults[] = {SIGSEGV, SIGBUS, SIGFPE};
struct sigaction former[65];
std::mutex installing;

void pass_on(int number, siginfo_t* info, void* context) {
  const struct sigaction& before = former[number];
  if ((before.sa_flags & SA_SIGINFO) != 0 && before.sa_sigaction != nullptr) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler == SIG_IGN && number == SIGINT) {
    return;
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL);  // the instruction runs again, and this time nobody is in the way
    if (number == SIGINT) {
      raise(number);
    }
  }
}

void on_fault(int number, siginfo_t* info, void* context) {
  Worker* const here = the_worker;
  if (here == nullptr || here->guarded == 0) {
    pass_on(number, info, context);
    return;
  }
  here->caught = number;
  here->address = reinterpret_cast<uintptr_t>(info->si_addr);
  siglongjmp(here->out, 1);
}

// Whom a Ctrl-C reaches in the middle of a kernel. Python's own handler notes it, and raises it when the launch is over.
std::atomic<Job*> running{nullptr};
std::vector<pthread_t>& pool_threads();

void on_stop(int, siginfo_t*, void*) {
  Worker* const here = the_worker;
  if (here != nullptr && here->guarded != 0) {
    here->caught = SIGINT;
    siglongjmp(here->out, 1);
  }
}

int stop_signal() {
  return SIGRTMAX - 3;
}

void on_interrupt(int number, siginfo_t* info, void* context) {
  const int saved = errno;
  pass_on(number, info, context);
  Job* const job = running.load();
  if (job != nullptr) {
    job->stopped.store(true);
    for (const pthread_t thread : pool_threads()) {
      pthread_kill(thread, stop_signal());
    }
    if (pthread_equal(job->caller, pthread_self()) == 0) {
      pthread_kill(job->caller, stop_signal());
    }
    errno = saved;
    on_stop(number, info, context);
  }
  errno = saved;
}

void install(int number, void (*handler)(int, siginfo_t*, void*)) {
  struct sigaction now{};
  sigaction(number, nullptr, &now);
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handler) {
    return;
  }
  former[number] = now;
  struct sigaction ours{};
  ours.sa_sigaction = handler;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&ours.sa_mask);
  sigaction(number, &ours, nullptr);
}

void install_handlers() {
  const std::lock_guard<std::mutex> lock(installing);
  for (const int number : kFaults) {
    install(number, on_fault);
  }
  install(stop_signal(), on_stop);
}

void Worker::prepare_signals() {
  if (signals_ready_) {
    return;
  }
  signals_ready_ = true;
  stack_t now{};
  sigaltstack(nullptr, &now);
  if ((now.ss_flags & SS_DISABLE) != 0) {
    void* memory = mmap(nullptr, kSignalStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED) {
      own_signal_stack_ = memory;
      stack_t ours{};
      ours.ss_sp = memory;
      ours.ss_size = kSignalStack;
      sigaltstack(&ours, nullptr);
    }
  }
}

// The pool: as many workers as a launch asks for, less the calling thread, which works too.
class Pool {
 public:
  void run(Job& job, unsigned workers) {
    const std::lock_guard<std::mutex> one(turn_);
    grow(workers - 1);
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      job_ = &job;
      wanted_ = workers - 1;
      busy_ = 0;
      ++round_;
    }
    wake_.notify_all();
    worker().work(job);
    std::unique_lock<std::mutex> lock(mutex_);
    job_ = nullptr;  // who has not come yet need not come any more
    done_.wait(lock, [&] { return busy_ == 0; });
  }
  std::vector<pthread_t> threads;

 private:
  void grow(unsigned count) {
    while (threads.size() < count) {
      sigset_t all, before;
      sigfillset(&all);
      for (const int number : kFaults) sigdelset(&all, number);
      sigdelset(&all, stop_signal());
      pthread_sigmask(SIG_SETMASK, &all, &before);  // Ctrl-C and the like are for the threads of Python
      std::thread thread([this] { serve(); });
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      threads.push_back(thread.native_handle());
      thread.detach();
    }
  }
  void serve() {
    uint64_t seen = 0;
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return round_ != seen; });
      seen = round_;
      if (job_ == nullptr || wanted_ == 0) {
        continue;
      }
      --wanted_;
      ++busy_;
      Job& job = *job_;
      lock.unlock();
      worker().work(job);
      lock.lock();
      if (--busy_ == 0) {
        done_.notify_all();
      }
    }
  }

  std::mutex turn_, mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  uint64_t round_ = 0;
  unsigned wanted_ = 0, busy_ = 0;
};

Pool* the_pool = nullptr;
pid_t pool_process = 0;

Pool& pool() {
  static std::mutex making;
  const std::lock_guard<std::mutex> lock(making);
  if (the_pool == nullptr || pool_process != getpid()) {  // a forked child has none of its parent's threads
    the_pool = new Pool;
    pool_process = getpid();
  }
  return *the_pool;
}

std::vector<pthread_t>& pool_threads() {
  static std::vector<pthread_t> none;
  return the_pool == nullptr ? none : the_pool->threads;
}

}  // namespace

extern "C" {

void anymps_rt_barrier(int) {
  the_worker->block_at_barrier();
}

void anymps_rt_simd(void* slot, Resolve resolve, unsigned long site) {
  the_worker->block_at_simd(slot, resolve, site);
}

unsigned anymps_rt_lane() {
  return the_worker->current % kLanes;
}

char* anymps_rt_shared() {
  return the_worker->shared;
}

// Runs a kernel over a grid; `workers` threads at most. Returns 0, or the signal that a fault of the kernel raised.
int anymps_rt_launch(
    const Kernel* kernel, void* const* buffers, const unsigned* grid, const unsigned* group, unsigned workers, Report* report) {
  Job job;
  job.kernel = kernel;
  job.caller = pthread_self();
  job.launch.buffers = buffers;
  uint64_t threads = 1;
  job.pieces = 1;
  for (unsigned axis = 0; axis < 3; ++axis) {
    job.launch.grid[axis] = grid[axis];
    job.launch.group[axis] = group[axis];
    job.launch.groups[axis] = (grid[axis] + group[axis] - 1) / group[axis];
    threads *= grid[axis];
  }
  if (kernel->form == anymps_rt::Plain) {
    const bool flat = grid[1] == 1 && grid[2] == 1;
    job.tile[0] = flat ? 16384 : (grid[1] == 1 ? 4096 : 64);
    job.tile[1] = flat ? 1 : 64;
    job.tile[2] = 1;
    for (unsigned axis = 0; axis < 3; ++axis) {
      job.tiles[axis] = (grid[axis] + job.tile[axis] - 1) / job.tile[axis];
      job.pieces *= job.tiles[axis];
    }
  } else {
    for (unsigned axis = 0; axis < 3; ++axis) {
      job.pieces *= job.launch.groups[axis];
    }
  }
  install_handlers();
  if (workers > job.pieces) {
    workers = static_cast<unsigned>(job.pieces);
  }
  if (kernel->form == anymps_rt::Plain && threads < 32768) {
    workers = 1;  // to wake another thread takes longer
  }
  Job* idle = nullptr;
  running.compare_exchange_strong(idle, &job);
  struct sigaction python{};
  sigaction(SIGINT, nullptr, &python);
  install(SIGINT, on_interrupt);
  if (job.pieces != 0) {
    if (workers <= 1) {
      worker().work(job);
    } else {
      pool().run(job, workers);
    }
  }
  Job* mine = &job;
  running.compare_exchange_strong(mine, nullptr);
  sigaction(SIGINT, &python, nullptr);
  *report = job.report;
  return job.report.signal;
}
}
