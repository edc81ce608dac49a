// The free blocks of a pool, in the order in which the real allocator looks at them. Inside of the heap model only.
#pragma once

#include "model/heap_blocks.h"

namespace anymps {

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
    std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) {
      return a->size != b->size ? a->size < b->size : a->address < b->address;
    });
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

inline bool before(const Block* a, const Block* b) {
  return a->size != b->size ? a->size < b->size : a->address < b->address;
}

}  // namespace anymps
