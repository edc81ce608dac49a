// Blocks, Metal heaps and the constants of the real allocator. Inside of the heap model only.
#pragma once

#include "model/heap.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <vector>

namespace anymps {

// Constants of MPSAllocator.h, equal in torch 2.7 to 2.15 unless noted.
inline constexpr uint64_t kMiB = 1048576;
inline constexpr uint64_t kMaxSmall = kMiB;             // at most this: small pool
inline constexpr uint64_t kMinLarge = 10 * kMiB;        // below: packed in 32 MiB heaps
inline constexpr uint64_t kRoundLarge = 2 * kMiB;       // granularity of dedicated heaps
inline constexpr uint64_t kSmallHeap = 8 * kMiB;
inline constexpr uint64_t kLargeHeap = 32 * kMiB;       // also the slack of whole-buffer reuse in G1 and G2
inline constexpr uint64_t kXLargeHeap = 1024 * kMiB;
inline constexpr uint64_t kXLargeHeapDiscrete = 128 * kMiB;  // torch <= 2.12, kXLargeHeapD
inline constexpr uint64_t kMaxScalar = 8;               // G1: at most this goes to the shared-small pool
inline constexpr uint64_t kMinSplitLarge = kMiB;        // G3: a smaller remainder stays with its block
inline constexpr uint64_t kPage = 16384;                // vm_page_size of Apple silicon
inline constexpr uint64_t kAlignment = 256;             // heapBufferSizeAndAlign on Apple silicon (pytorch issue 193838)
inline constexpr double kMaxRatio = 2.0;
inline constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
inline constexpr uint64_t kFirstBase = uint64_t{1} << 32;

inline constexpr uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

struct HeapPool;
struct FreeBucket;

struct HeapRange {
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct MetalHeap {
  uint64_t base = 0;
  uint64_t size = 0;
  HeapPool* pool = nullptr;
  uint32_t id = 0;
  bool dedicated = false;  // made for one buffer ("not split")
  // G1, G2: the free ranges, in offset order and joined unless `stale`.
  uint32_t buffers = 0;
  bool stale = false;
  uint64_t available = 0;
  std::vector<HeapRange> gaps;
  // G3: the blocks, in offset order.
  Block* first = nullptr;
  uint64_t free_bytes = 0;
  uint64_t max_free_run = 0;  // upper bound of what merging can yield

  // Largest free run that starts on a page (maxAvailableSizeWithAlignment:vm_page_size).
  uint64_t measure_available() {
    if (stale) {
      std::sort(gaps.begin(), gaps.end(), [](const HeapRange& a, const HeapRange& b) { return a.offset < b.offset; });
      size_t last = 0;
      available = 0;
      for (size_t i = 0; i < gaps.size(); ++i) {
        if (i > 0 && gaps[last].offset + gaps[last].size == gaps[i].offset) {
          gaps[last].size += gaps[i].size;
        } else {
          last = i == 0 ? 0 : last + 1;
          gaps[last] = gaps[i];
        }
        const uint64_t end = gaps[last].offset + gaps[last].size;
        available = std::max(available, end - std::min(end, round_up(gaps[last].offset, kPage)));
      }
      gaps.resize(gaps.empty() ? 0 : last + 1);
      stale = false;
    }
    return available;
  }
};

struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t nbytes = 0;
  uint64_t current = 0, total = 0;  // of the model, just after the allocation
  MetalHeap* heap = nullptr;
  FreeBucket* bucket = nullptr;  // where it was free last
  Block* next = nullptr;     // G3: in the heap, by offset
  uint64_t freed_at = 0;     // G1, G2: epoch of its pool when it was freed
  uint32_t id = 0;           // of its Metal buffer; 0: a free range without one (G3)
  uint32_t slot = 0;         // in its bucket
  bool in_use = false;
};

// NodeStore that never move and are used again, so that a steady state never reaches malloc.
template <class T>
class NodeStore {
 public:
  T* make() {
    if (spare_.empty()) return &nodes_.emplace_back();
    T* node = spare_.back();
    spare_.pop_back();
    *node = T{};
    return node;
  }
  void drop(T* node) { spare_.push_back(node); }
  void clear() {
    spare_.clear();
    nodes_.clear();
  }

 private:
  std::deque<T> nodes_;
  std::vector<T*> spare_;
};

inline void increase(Statistic& statistic, uint64_t bytes) {
  statistic.current += bytes;
  statistic.allocated += bytes;
  statistic.peak = std::max(statistic.peak, statistic.current);
}

inline void decrease(Statistic& statistic, uint64_t bytes) {
  statistic.current -= bytes;
  statistic.freed += bytes;
}

}  // namespace anymps
