// What a compiled kernel and the runtime tell each other. Plain C++, no torch: both sides include it.
#pragma once

namespace anymps_rt {

// One dispatch: what is the same for all its threads.
struct Launch {
  void* const* buffers;
  unsigned grid[3];    // threads
  unsigned group[3];   // threads of a whole group
  unsigned groups[3];  // groups, those at the edges included
};

// One group: at the edges of a grid it has fewer threads than others.
struct Group {
  const Launch* launch;
  unsigned position[3];
  unsigned size[3];
  unsigned threads;  // of this group
  char* shared;      // its threadgroup memory
};

// One thread, for kernels that run as fibers.
struct Thread {
  const Launch* launch;
  const Group* of;
  unsigned local[3];
  unsigned index;  // in its group
};

// A box of threads of a kernel whose threads need nothing of each other.
struct Box {
  unsigned from[3], to[3];
};

// How a kernel runs: as loops over boxes of the grid; with each thread of a group as a fiber; a whole group by one call;
// or as loops over lanes, which `thread` is a Lanes for.
enum class Form : int { Plain = 0, Fibers = 1, Groups = 2, Lanes = 3 };

struct Kernel {
  const char* name;
  Form form;
  void (*plain)(const Launch&, const Box&);
  void (*thread)(const Thread&);
  void (*group)(const Group&);
  unsigned (*shared_bytes)();  // threadgroup memory that the kernel declares
  unsigned max_threads;        // of a group
  unsigned buffers;            // how many it binds
  int axis;                    // of Form::Groups: along which the threads of a group must lie
  int together;                // of Form::Groups: whether groups do a part of their work side by side, by anymps_rt_simd
};

// How a thread came to where it is: the places of the calls of the program's own functions that it is in, the outermost
// first. Behind them stands the place of the SIMD call that it waits at. `pending` are calls whose arguments are made now.
struct Chain {
  static constexpr unsigned most = 8;
  unsigned depth, calls;
  unsigned long place[most];
  unsigned long pending[most];

  void calls_from(unsigned long from) { pending[calls++ % most] = from; }
  void called() {
    const unsigned long from = calls == 0 ? 0 : pending[--calls % most];
    if (depth < most - 1) place[depth] = from;
    ++depth;
  }
  void returns() { --depth; }
};

// Runs once for the lanes of a SIMD group that wait at one call: `slots[lane]` is what each lane brought.
using Resolve = void (*)(void* const* slots, unsigned lanes);

// A thread that was cut where it waits. `run` runs lanes that all are at one place, until each waits or is done, and writes
// where each is then: place 0 is the beginning, place n the n-th wait, kDone the end. `frames` has arrays of all lanes.
struct Lanes {
  void (*run)(
      const Launch& launch, const Group& of, const Thread* threads, char* frames, unsigned char* places, unsigned place,
      unsigned from, unsigned to);
  unsigned long frame_bytes;
  struct At {
    Resolve resolve;  // null at a barrier
    unsigned long site, offset, stride;  // where the slots of lanes lie in `frames`
  };
  const At* waits;  // by place
};
constexpr unsigned char kDone = 255;

}  // namespace anymps_rt

extern "C" {
void anymps_rt_barrier(int);
void anymps_rt_simd(void* slot, anymps_rt::Resolve resolve, unsigned long site);
unsigned anymps_rt_lane();
__attribute__((const)) anymps_rt::Chain* anymps_rt_chain();  // of the running fiber, as long as it lives
typedef void (*anymps_rt_entry)(void* context, unsigned thread);
// Runs a group of at most 1024 threads as fibers on this OS thread. Not to be called from within one of them.
void anymps_rt_group(unsigned threads, anymps_rt_entry entry, void* context);
char* anymps_rt_shared();  // the threadgroup memory of the group that runs on this thread
#if defined(ANYMPS_CHECKED)  // these are checking/checker.cpp's
void anymps_check_thread(const anymps_rt::Thread& thread);
#if defined(__clang__)  // two calls in two branches stay two
#define ANYMPS_APART __attribute__((convergent, nomerge))
#else
#define ANYMPS_APART
#endif
ANYMPS_APART void anymps_check_barrier(unsigned flags, unsigned long site);
ANYMPS_APART void anymps_check_simd(void* slot, anymps_rt::Resolve resolve, unsigned long site);
ANYMPS_APART void anymps_check_simd_barrier(unsigned flags, unsigned long site);
void anymps_check_calls(unsigned long place);
void anymps_check_called();
void anymps_check_returns();
void anymps_check_constant(const void* address, unsigned size);
float* anymps_check_row(const void* data, unsigned stride, unsigned parts, unsigned count, bool* known);
void anymps_check_lane(unsigned lane, unsigned source);
void anymps_check_matrix(unsigned lanes);
char* anymps_check_shared();
#endif
}

// What a checked shader asks instead. A call that the checker tells of stands in the user's line, hence always inline.
#if defined(ANYMPS_CHECKED)
#define ANYMPS_BARRIER(FLAGS, SITE) anymps_check_barrier(unsigned(FLAGS), SITE)
#define ANYMPS_SIMD_BARRIER(FLAGS, SITE) anymps_check_simd_barrier(unsigned(FLAGS), SITE)
#define ANYMPS_SIMD anymps_check_simd
#define ANYMPS_SHARED anymps_check_shared
#define ANYMPS_SYNC __attribute__((always_inline))
#define ANYMPS_UNCHECKED __attribute__((no_sanitize("thread", "undefined")))
#define ANYMPS_IF_CHECKED(...) __VA_ARGS__
#else
#define ANYMPS_BARRIER(FLAGS, SITE) anymps_rt_barrier(0)
#define ANYMPS_SIMD_BARRIER(FLAGS, SITE) anymps_rt_simd(nullptr, anymps_sync::nothing, SITE)
#define ANYMPS_SIMD anymps_rt_simd
#define ANYMPS_SHARED anymps_rt_shared
#define ANYMPS_SYNC
#define ANYMPS_UNCHECKED
#define ANYMPS_IF_CHECKED(...)
#endif
