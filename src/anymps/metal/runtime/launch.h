// Runs a kernel over a grid: the way into the runtime, for Python and for kernels made elsewhere alike.
#pragma once

#include <cstdint>

#include <msl/runtime.h>

namespace anymps_rt {

// What a launch came to; read by Python.
struct Report {
  int signal;  // 0: well
  int known;             // of where it was stopped: 0 nothing, 1 the thread, 2 its group
  unsigned position[3];  // of that
  uintptr_t address;
};

}  // namespace anymps_rt

// `kernel->form` says which of its functions is called: `plain` for boxes of the grid, `thread` for each thread of a group as
// a fiber, `group` once for a whole group. `workers` threads at most. Returns 0, or the signal that a fault of the kernel
// raised.
//
// `plan` are the grid, the group, how many buffers there are, and where in `packed` each of them is found, a multiple of 8. With
// its low bit set a place is where a constant lies, else where an address of 8 bytes does.
extern "C" int anymps_rt_call(const anymps_rt::Kernel* kernel, const char* packed, const unsigned* plan, unsigned workers);
// For `count` groups of the grid alone, at least one, from number `first` on: x before y before z.
extern "C" int anymps_rt_launch_groups(
    const anymps_rt::Kernel* kernel, void* const* buffers, const unsigned* grid, const unsigned* group, uint64_t first,
    uint64_t count, unsigned workers, anymps_rt::Report* report);
// What stopped the last launch of this OS thread that did not end well.
extern "C" void anymps_rt_last_report(anymps_rt::Report* report);
