// Python's handlers of signals, run in the midst of a launch.
#include "ask.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <sys/syscall.h>
#include <unistd.h>

#include "stacks.h"

namespace anymps_rt {
namespace {

struct Python {
  int (*ensure)();
  void (*release)(int state);
  int (*check_signals)();
  void (*fetch)(void** type, void** value, void** trace);
  void (*restore)(void* type, void* value, void* trace);
};
std::atomic<const Python*> given{nullptr};  // two threads may both load the runtime first, and one launch meanwhile
void* raised[3];  // by the last handler that raised; of the first thread alone
thread_local bool asking = false;

struct Stacked {
  void *here, *there;
  bool well;
};
Stacked* stacked = nullptr;  // of the first thread alone

void ask_stacked() {
  Stacked* const mine = stacked;
  mine->well = ask_python();
  anymps_rt_switch(&mine->there, mine->here);
  __builtin_unreachable();
}

}  // namespace

bool is_first_thread() {
  static thread_local const bool first = syscall(SYS_gettid) == getpid();
  return first;
}

bool is_asking() {
  return asking;
}

bool ask_python() {
  const Python* const python = given.load(std::memory_order_acquire);
  if (python == nullptr) {
    return true;
  }
  const int saved = errno;
  const bool before = asking;
  asking = true;
  const int state = python->ensure();
  void *type, *value, *trace;
  python->fetch(&type, &value, &trace);  // what whoever launched may hold
  const bool well = python->check_signals() == 0;
  if (!well) {
    python->fetch(&raised[0], &raised[1], &raised[2]);
  }
  python->restore(type, value, trace);
  python->release(state);
  asking = before;
  errno = saved;
  return well;
}

bool ask_python_on(char* top) {
  Stacked mine{nullptr, nullptr, true};
  Stacked* const before = stacked;
  stacked = &mine;
  char* const aligned = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(top) / 64 * 64);
  anymps_rt_switch(&mine.here, first_frame(aligned, ask_stacked));
  stacked = before;
  return mine.well;
}

}  // namespace anymps_rt

extern "C" void anymps_rt_python(void* const* functions) {
  // Never freed: a launch may hold the one before.
  anymps_rt::given.store(
      new anymps_rt::Python{
          reinterpret_cast<int (*)()>(functions[0]),
          reinterpret_cast<void (*)(int)>(functions[1]),
          reinterpret_cast<int (*)()>(functions[2]),
          reinterpret_cast<void (*)(void**, void**, void**)>(functions[3]),
          reinterpret_cast<void (*)(void*, void*, void*)>(functions[4]),
      },
      std::memory_order_release);
}

extern "C" void anymps_rt_raise() {
  using anymps_rt::raised;
  anymps_rt::given.load(std::memory_order_acquire)->restore(raised[0], raised[1], raised[2]);
  raised[0] = raised[1] = raised[2] = nullptr;
}
