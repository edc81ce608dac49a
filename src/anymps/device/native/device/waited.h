// What happens wherever the host has waited for the device.
#pragma once

#include "device/delayed.h"
#include "recorder/nonblocking.h"

namespace anymps {

// Copies have arrived, and an error that a kernel has left is raised as torch.AcceleratorError.
inline void host_has_waited() {
  nonblocking::waited();
  delayed::check();
}

}  // namespace anymps
