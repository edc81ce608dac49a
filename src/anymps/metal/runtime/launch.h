// Runs a kernel over a grid: the way into the runtime, for Python and for kernels made elsewhere alike.
#pragma once

#include <cstdint>

#include <msl/runtime.h>

namespace anymps_rt {

// What a launch came to; read by Python.
struct Report {
  int signal;  // 0: well
  int has_thread;
  unsigned position[3];  // of the thread in the grid, if it is known
  uintptr_t address;
};

}  // namespace anymps_rt

// `kernel->form` says which of its functions is called: `plain` for boxes of the grid, `thread` for each thread of a group as
// a fiber, `group` once for a whole group. `workers` threads at most. Returns 0, or the signal that a fault of the kernel
// raised.
extern "C" int anymps_rt_launch(
    const anymps_rt::Kernel* kernel, void* const* buffers, const unsigned* grid, const unsigned* group, unsigned workers,
    anymps_rt::Report* report);
