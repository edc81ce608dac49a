// The lock of the heap model: held for a fraction of a microsecond by most calls, so that waiting threads spin.
#pragma once

#include <atomic>
#include <thread>

namespace anymps {

class SpinLock {
 public:
  void lock() noexcept {
    for (int spins = 0; taken_.exchange(true, std::memory_order_acquire);) {
      while (taken_.load(std::memory_order_relaxed)) {
        if (++spins > 64) std::this_thread::yield();  // the holder may be collecting or emptying the cache
      }
    }
  }
  void unlock() noexcept { taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> taken_{false};
};

class HeapGuard {
 public:
  explicit HeapGuard(SpinLock& lock) : lock_(lock) { lock_.lock(); }
  ~HeapGuard() { lock_.unlock(); }
  HeapGuard(const HeapGuard&) = delete;
  HeapGuard& operator=(const HeapGuard&) = delete;

 private:
  SpinLock& lock_;
};

}  // namespace anymps
