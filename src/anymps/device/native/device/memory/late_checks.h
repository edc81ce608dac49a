// Checks whose answer lies on a GPU: asked when the call is queued, looked at where the host waits anyway.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>

namespace anymps::late_checks {

extern std::atomic<bool> open;
void look();

// Keeps whether an element of `flag`, a tensor of the GPU's, is not zero: then something is wrong, and `report` says what.
void keep(const at::Tensor& flag, std::function<void()> report);

// To be called wherever the host waits, before delayed::check.
inline void settle() {
  if (C10_UNLIKELY(open.load(std::memory_order_relaxed))) {
    look();
  }
}

}  // namespace anymps::late_checks
