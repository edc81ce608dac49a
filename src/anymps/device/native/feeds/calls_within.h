// Whether the calls that an operator's kernel makes are worth switching the observer off for. Needs no torch.
#pragma once

#include <atomic>
#include <cstdint>

namespace anymps::observer {

// What the last counted call of the operator says of those after it. Kernels take other ways with other arguments (a number, a
// layout), so what was learnt of one call is counted again later. Threads may lose each other's counts, which only costs time.
class CallsWithin {
 public:
  // Switching off and on takes as long as to be told of about four calls, each with its arguments and results boxed.
  static constexpr uint32_t kMany = 5;
  static constexpr uint32_t kBelieved = 64;  // calls, before one is counted again

  // Whether to switch off for the next call. One that is not is counted.
  bool takes_many() {
    const uint32_t left = left_.load(std::memory_order_relaxed);
    if (left == 0) {
      return false;
    }
    left_.store(left - 1, std::memory_order_relaxed);
    return true;
  }
  void counted(uint32_t calls) {
    if (calls >= kMany) {
      left_.store(kBelieved, std::memory_order_relaxed);
    }
  }

 private:
  std::atomic<uint32_t> left_{0};
};

}  // namespace anymps::observer
