// Checks whose answer lies on a card: asked when the call is queued, looked at where the host waits anyway.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <functional>

namespace anymps::late_checks {

extern std::atomic<bool> open;
void look();

// Keeps `flag`, a tensor of the card's with an element that is not zero where something is wrong; `tell` then says what.
void keep(at::Tensor flag, std::function<void()> tell);

// To be called wherever the host waits, before delayed::check.
inline void settle() {
  if (C10_UNLIKELY(open.load(std::memory_order_relaxed))) {
    look();
  }
}

}  // namespace anymps::late_checks
