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

inline bool before(const Block* a, const Block* b) {
  return a->size != b->size ? a->size < b->size : a->address < b->address;
}

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

// The free blocks of a pool, in the order in which the real allocator looks at them. Inside of the heap model only.
class FreeBlocks;

// The free blocks of one size: a binary heap by address.
struct FreeBucket {
  struct Entry {
    uint64_t address;
    Block* block;
  };
  uint64_t size = 0;
  FreeBlocks* owner = nullptr;
  bool listed = false;
  std::vector<Entry> entries;

  void put(size_t slot, const Entry& entry) {
    entries[slot] = entry;
    entry.block->slot = static_cast<uint32_t>(slot);
  }
  void rise(size_t slot, const Entry entry) {
    for (; slot > 0 && entries[(slot - 1) / 2].address > entry.address; slot = (slot - 1) / 2) {
      put(slot, entries[(slot - 1) / 2]);
    }
    put(slot, entry);
  }
  void sink(size_t slot, const Entry entry) {
    for (size_t child; (child = 2 * slot + 1) < entries.size(); slot = child) {
      if (child + 1 < entries.size() && entries[child + 1].address < entries[child].address) ++child;
      if (entries[child].address > entry.address) break;
      put(slot, entries[child]);
    }
    put(slot, entry);
  }
};

// Free blocks in the order (size, address), as the std::set of the real allocator.  Buckets of one size are
// found by hash; the list of sizes is ordered and forgets empty buckets only when a search meets them.
class FreeBlocks {
 public:
  void insert(Block* block) {
    FreeBucket* bucket = block->bucket;
    if (bucket == nullptr || bucket->size != block->size || bucket->owner != this) {
      block->bucket = bucket = make(block->size);
    }
    if (!bucket->listed) {
      listed_.insert(position(bucket->size), bucket);
      bucket->listed = true;
    }
    bucket->entries.push_back({});
    bucket->rise(bucket->entries.size() - 1, {block->address, block});
  }

  static void erase(Block* block) {
    FreeBucket& bucket = *block->bucket;
    const size_t slot = block->slot;
    const FreeBucket::Entry moved = bucket.entries.back();
    bucket.entries.pop_back();
    if (moved.block == block) return;
    if (slot > 0 && bucket.entries[(slot - 1) / 2].address > moved.address) {
      bucket.rise(slot, moved);
    } else {
      bucket.sink(slot, moved);
    }
  }

  // The smallest block of at least `size` bytes, the lowest address among equals.
  Block* lower_bound(uint64_t size) {
    if (const FreeBucket* exact = find(size); exact != nullptr && !exact->entries.empty()) {
      return exact->entries.front().block;
    }
    auto begin = position(size);
    auto it = begin;
    for (; it != listed_.end() && (*it)->entries.empty(); ++it) (*it)->listed = false;
    it = listed_.erase(begin, it);
    return it == listed_.end() ? nullptr : (*it)->entries.front().block;
  }

  Block* largest() {
    for (; !listed_.empty() && listed_.back()->entries.empty(); listed_.pop_back()) listed_.back()->listed = false;
    if (listed_.empty()) return nullptr;
    const auto& entries = listed_.back()->entries;
    return std::max_element(entries.begin(), entries.end(), [](const FreeBucket::Entry& a, const FreeBucket::Entry& b) {
             return a.address < b.address;
           })->block;
  }

  std::vector<Block*> ordered() const {
    std::vector<Block*> blocks;
    for (const FreeBucket* bucket : listed_) {
      for (const FreeBucket::Entry& entry : bucket->entries) blocks.push_back(entry.block);
    }
    std::sort(blocks.begin(), blocks.end(), before);
    return blocks;
  }

  void clear() {
    table_.clear();
    listed_.clear();
    buckets_.clear();
  }

 private:
  std::vector<FreeBucket*>::iterator position(uint64_t size) {
    return std::lower_bound(listed_.begin(), listed_.end(), size,
                            [](const FreeBucket* bucket, uint64_t wanted) { return bucket->size < wanted; });
  }

  // Where `size` is, or should go, in a table of a power of two with free places.
  size_t probe(uint64_t size) const {
    const size_t mask = table_.size() - 1;
    size_t at = static_cast<size_t>((size / kAlignment * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (table_[at] != nullptr && table_[at]->size != size) at = (at + 1) & mask;
    return at;
  }
  FreeBucket* find(uint64_t size) const { return table_.empty() ? nullptr : table_[probe(size)]; }

  FreeBucket* make(uint64_t size) {
    if (FreeBucket* known = find(size)) return known;
    FreeBucket& bucket = buckets_.emplace_back();
    bucket.size = size;
    bucket.owner = this;
    if (table_.size() < 2 * buckets_.size()) {
      table_.assign(std::max<size_t>(64, 2 * table_.size()), nullptr);
      for (FreeBucket& each : buckets_) table_[probe(each.size)] = &each;
    } else {
      table_[probe(size)] = &bucket;
    }
    return &bucket;
  }

  std::deque<FreeBucket> buckets_;
  std::vector<FreeBucket*> table_;
  std::vector<FreeBucket*> listed_;  // by size; holds every bucket that is not empty
};

struct HeapPool {
  bool small = false;
  bool shared = false;
  uint64_t min_split = 0;    // G3
  uint64_t free_size = 0;    // bytes of free blocks ("available_size")
  uint64_t epoch = 0;        // G1, G2: a free buffer's gc_count is epoch - freed_at
  std::vector<MetalHeap*> heaps;  // oldest first, which is also by address
  FreeBlocks free;              // blocks with a Metal buffer
  FreeBlocks bare;              // G3: blocks without one
};

}  // namespace anymps
