// Errors that kernels of the real device write into a buffer: noted at the call, raised at the next wait.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <optional>
#include <string>

namespace anymps::delayed {

extern std::atomic<bool> pending;
void raise_pending();

struct Taken {
  uint32_t number;  // of its refusal on the tape; 0 if nothing recorded
  std::string message;
};
// What the next wait would have raised, which then raises nothing: for who knows better whose error it is.
std::optional<Taken> take();

// Notes an error of a kernel. The first one between two waits is kept, later ones are lost (torch 2.11 to 2.15,
// MPSStream::checkLastError, which raises the first message of the buffer and forgets the rest).
void note(Refusal kind, const Rule& rule, const std::string& message, const at::Tensor& culprit = {});

// To be called wherever the host has waited for the device: raises what was noted, as torch.AcceleratorError.
inline void check() {
  if (C10_UNLIKELY(pending.load(std::memory_order_relaxed))) {
    raise_pending();
  }
}

}  // namespace anymps::delayed
