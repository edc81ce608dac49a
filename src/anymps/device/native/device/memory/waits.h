// The host waits for the device: what happens wherever it has, and waits that are no operators.
#pragma once

#include "device/memory/delayed.h"
#include "device/memory/late_checks.h"
#include "recorder/recorder.h"

namespace anymps {

// Copies have arrived, and an error that a kernel has left is raised as torch.AcceleratorError.
inline void host_has_waited() {
  nonblocking::waited();
  late_checks::settle();
  delayed::check();
}

// Returns when a GPU has computed all that is queued. Elsewhere nothing is.
void wait_for_gpu();

// Notes a wait that is no operator, where the device tells of calls.
void mark_wait(const char* name, int64_t start_ns, int64_t end_ns, Wait wait);

// The host waits for the device: notes it on the tape under `name` ("anymps::synchronize").
void synchronize_device(const char* name);

// Gives cached memory back, for which the host waits first, and notes it on the tape.
void empty_device_cache();

}  // namespace anymps
