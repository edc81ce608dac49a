// What the host knows of integers that lie on a card, so that a kernel need not be asked whether they are good indices.
//
// Known are those that the host has sent, that a count (`arange`) has made, and those that a check has found good. It is known
// of a buffer's bytes as they are: whatever may write to them, or takes them for anything but integers, ends it. Only a
// substrate whose kernels stop at bad indices asks. Why another thread cannot come between: card_traffic.h.
#pragma once

#include "device/memory/memory.h"

#include <ATen/core/Tensor.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace anymps::known_integers {

// Each lies from `low` to `high`, or is `besides`.
struct Range {
  int64_t low = 0, high = 0;
  std::optional<int64_t> besides;

  bool lies_in(const Range& other) const;
};

struct Answer {
  bool good = false;  // all lie in the range that was asked for, and will as long as this thread's use lasts (card_traffic.h)
  // While a check of just this is on its way: what it computes with meanwhile, and what will say whether it is bad.
  at::Tensor safe, flag;
};

// `shown` is an mps tensor or the alias of one.
Answer ask(const at::Tensor& shown, const Range& wanted);

// Keeps what stands for `shown` until a check has its answer; 0 where that cannot be kept. The kernels of the check are queued.
uint64_t await(const at::Tensor& shown, const Range& wanted, const at::Tensor& safe, const at::Tensor& flag);
void answered(uint64_t check, bool good);

// Of a tensor that shows all of its storage; nothing for any other. What has written it is queued.
void learn(const at::Tensor& whole, const Range& range);
// The same, from the numbers themselves, on the CPU and contiguous.
void learn_from(const at::Tensor& whole, const at::Tensor& numbers);
// What is known of `source` holds for its copy.
void carry(const at::Tensor& source, const at::Tensor& copy);

extern std::atomic<bool> any;
void look_at_change(const c10::TensorImpl* tensor, bool written);

// To be called with each mps tensor that a kernel is given, in a passage and before that is queued.
inline void passes(const c10::TensorImpl* tensor, bool written) {
  if (any.load(std::memory_order_relaxed) &&
      (written || !c10::isIntegralType(c10::typeMetaToScalarType(tensor->dtype()), /*includeBool=*/false))) {
    look_at_change(tensor, written);
  }
}

}  // namespace anymps::known_integers
