// The state of one checked launch: which thread runs, what memory it may touch, and what was found.
//
// Checked groups have one worker, so that they run one after the other, and the same launch finds the same twice.
#pragma once

#include <msl/runtime.h>

#include "arena.h"
#include "events.h"
#include "races.h"

namespace anymps_check {

constexpr unsigned kMaxThreads = 1024;
constexpr size_t kMostShared = 64 << 10;  // bytes of threadgroup memory: twice what Metal gives
constexpr uintptr_t kStack = 72 << 10;  // a fiber's stack and the closed page below it

// Who called a hook: the address to return to, and the frame in which that is.
struct Caller {
  void* frame;
  void* pc;
};
#define ANYMPS_CALLER anymps_check::Caller{__builtin_frame_address(0), __builtin_return_address(0)}
struct Frames {
  uint64_t pcs[kFrames];
};

class __attribute__((visibility("hidden"))) Checker {
 public:
  // Returns 0, or 1 where there is no memory for it.
  int begin(Area* areas, unsigned count, unsigned shared_area, const void* code);
  void end();
  void pause() { settle(); }  // before groups that are not checked

  void thread_begins(const anymps_rt::Thread& thread);
  void barrier(unsigned flags, unsigned long site, const Caller& caller);
  void simd(void* slot, anymps_rt::Resolve resolve, unsigned long site, const Caller& caller);
  void simd_barrier(unsigned flags, unsigned long site, const Caller& caller);
  void constant(const void* address, unsigned size);
  float* row(uintptr_t address, unsigned stride, unsigned parts, unsigned count, bool& known, const Caller& caller);
  void missing_lane(unsigned lane, unsigned source);
  void missing_matrix(unsigned lanes);

  // Whether an access needs a look: not one of a thread's own variables, and not one outside of launches.
  bool concerns(uintptr_t address) const { return address - stacks_low_ >= stacks_span_; }
  void look(uintptr_t address, unsigned size, int how, const Caller& caller) {
    if (concerns(address) && !(how == Read && is_plain(address, size, caller))) access(address, size, how, caller);
  }
  void misaligned(uintptr_t address, unsigned alignment, const Caller& caller, const char* type);
  void event(int kind, int64_t value, const Caller& caller, const char* text = "");
  char* shared() { return arena_.area(shared_).start; }

  Events events;

 private:
  struct Waiting {
    unsigned calls = 0;
    unsigned flags = 0;
    unsigned long site = 0;
    Caller caller{};  // whose frames stay as long as it waits
  };
  struct Lane {  // at a SIMD call
    void* slot;
    anymps_rt::Resolve resolve;
    unsigned thread;
    unsigned flags;
    Caller caller;
  };
  struct Same {  // a write that races with another one, which may have written the same
    bool pending = false;
    uintptr_t address;
    unsigned size;
    char before[64];
    Event event;
  };

  struct Row {  // that threads read as a whole, one after the other
    uintptr_t address = 0;
    unsigned stride = 0, count = 0;
    uint64_t moment = 0;
    unsigned passes = 0;     // threads whose reads were looked at, and clean
    unsigned simdgroup = 0;  // of the first of them
    bool spread = false;     // whether one was of another SIMD group
    float result[3] = {};    // what the first of them made of it
  };

  // Whether a read is one of the many in which there is nothing to find: of a buffer that the kernel only reads, and of
  // threadgroup memory that others read since a barrier.
  bool is_plain(uintptr_t address, unsigned size, const Caller& caller) {
    if (same_.pending) return false;
    const uintptr_t place = address - shared_low_;
    if (place < shared_span_) {
      return (place | size) % Races::kBytes == 0 && size <= shared_span_ - place &&
          races_.read_again(place, size, current_, offset_of(caller));
    }
    if (!arena_.has(address)) return false;
    const Area& area = arena_.area(arena_.find(address));
    const uint64_t offset = address - reinterpret_cast<uintptr_t>(area.start);
    return area.fixed != 0 && offset < area.bytes && area.bytes - offset >= size;  // who reads beside others races with nobody
  }
  uint32_t offset_of(const Caller& caller) const {
    return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(caller.pc) - code_low_);
  }
  void access(uintptr_t address, unsigned size, int how, const Caller& caller);
  static void resolve_call(void* const* slots, unsigned lanes);
  static void resolve_barrier(void* const* slots, unsigned lanes);
  bool is_initialised(const Area& area, int64_t offset, unsigned size, int how, const Caller& caller);
  void opened(unsigned calls);
  void settle() {
    if (same_.pending) settle_same_value();
  }
  void settle_same_value();
  Frames frames(const Caller& caller) const;
  Event blank(int kind, const Frames& frames) const;
  Event of_access(int kind, unsigned area, int64_t offset, unsigned size, int how, const Caller& caller) const;
  void place(unsigned (&into)[3], unsigned thread) const;
  bool is_code(uintptr_t address) const { return address - code_low_ < code_span_; }
  [[noreturn]] void stop();

  Arena arena_;
  Area* areas_ = nullptr;  // Python's
  Races races_;
  unsigned shared_ = 0;
  uintptr_t stacks_low_ = 0, stacks_span_ = ~uintptr_t(0);  // everything: no launch
  uintptr_t shared_low_ = 0, shared_span_ = 0;
  uintptr_t code_low_ = 0, code_span_ = 0;
  const anymps_rt::Group* group_ = nullptr;
  unsigned current_ = 0, opened_ = 0;
  Waiting waiting_[kMaxThreads];
  Lane* lanes_[32] = {};  // of the SIMD call that is done now
  Same same_;
  Row row_;
  unsigned char initialised_[kMostShared] = {};  // by byte of threadgroup memory
  char pattern_[kMostShared] = {};                // what it holds that nobody has written
};

extern Checker checker;

}  // namespace anymps_check
