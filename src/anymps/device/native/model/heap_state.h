// What the heap model holds, and how a request goes through it. Inside of the heap model only.
#pragma once

#include "locks/locks.h"
#include "model/heap_blocks.h"

#include <array>
#include <atomic>

namespace anymps {

struct HeapRequest {
  uint64_t nbytes = 0;
  uint64_t size = 0;  // as charged against the limits
  HeapPool* pool = nullptr;
  bool pressure = false;
  Block* block = nullptr;  // the answer
};

class HeapModel::State {
 public:
  mutable Mutex lock;
  HeapConfig config;
  uint64_t high_limit = 0;
  uint64_t low_limit = 0;
  Statistic allocated;
  Statistic reserved;
  uint64_t live = 0;
  std::atomic<uint64_t> drains{0};  // read without the lock

  void configure(const HeapConfig& wanted);
  void set_high_ratio(double ratio);
  Block* allocate(uint64_t nbytes);
  void release(Block* block);
  void empty_cache();
  void drain();
  uint64_t driver() const { return config.driver_baseline + reserved.current; }

 private:
  enum { kSmallPool, kLargePool, kTinyPool, kPools };  // the tiny pool is G1's shared-small

  std::array<HeapPool, kPools> pools_;
  NodeStore<Block> blocks_;
  NodeStore<MetalHeap> heaps_;
  uint32_t last_buffer_ = 0;
  uint32_t last_heap_ = 0;
  uint64_t next_base_ = kFirstBase;

  bool placement() const { return config.generation == HeapGeneration::G3; }
  bool over_limit(uint64_t size) const { return high_limit != kUnlimited && driver() + size > high_limit; }
  uint64_t xlarge_heap() const { return config.unified ? kXLargeHeap : kXLargeHeapDiscrete; }
  uint64_t heap_size_for(uint64_t size, bool pressure, bool* dedicated) const;
  uint64_t charged_size(uint64_t nbytes) const;
  HeapPool& pool_for(uint64_t nbytes, uint64_t size);
  bool fulfil(HeapRequest& request);
  [[noreturn]] void fail(const HeapRequest& request) const;
  MetalHeap* create_heap(const HeapRequest& request);
  void remove_heap(MetalHeap* heap);

  // G1, G2
  bool take_buffer(HeapRequest& request);
  bool place_buffer(HeapRequest& request);
  void drop_buffer(Block* block, bool and_empty_heap);
  bool drop_fitting_buffers(const HeapRequest& request);
  void collect_buffers(HeapPool& pool);
  static MetalHeap* tightest_heap(const HeapPool& pool, uint64_t size);

  // G3
  bool take_block(HeapRequest& request);
  bool merge_blocks(HeapRequest& request);
  bool place_heap(HeapRequest& request);
  void cut(HeapRequest& request, Block* block);
  uint64_t drop_free_heaps(HeapPool& pool, uint64_t target);
  static void insert_free(HeapPool& pool, Block* block) { (block->id != 0 ? pool.free : pool.bare).insert(block); }
};

}  // namespace anymps
