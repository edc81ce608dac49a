// Generations G1 and G2 of the allocator: buffers are taken again whole.
#include "model/heap_state.h"

namespace anymps {

// get_free_buffer: the smallest buffer that fits, whole, unless it wastes more than 32 MiB.
bool HeapModel::State::take_buffer(HeapRequest& request) {
  if (over_limit(request.size)) return false;
  HeapPool& pool = *request.pool;
  if (!pool.small && config.low_ratio > 0.0) ++pool.epoch;
  Block* block = pool.free.lower_bound(request.size);
  if (block == nullptr) return false;
  if (block->size > request.size + kLargeHeap) {
    if (tightest_heap(pool, request.size) == nullptr) {
      drop_buffer(block, false);  // its heap makes room for the new buffer
      request.pressure = false;
    }
    return false;
  }
  FreeBlocks::erase(block);
  pool.free_size -= block->size;
  request.block = block;
  return true;
}

MetalHeap* HeapModel::State::tightest_heap(const HeapPool& pool, uint64_t size) {
  MetalHeap* best = nullptr;
  for (MetalHeap* heap : pool.heaps) {
    const uint64_t available = heap->measure_available();
    if (available >= size && (best == nullptr || available < best->available)) best = heap;
  }
  return best;
}

// alloc_buffer: cut a new buffer from the tightest heap, or from a new one.
bool HeapModel::State::place_buffer(HeapRequest& request) {
  if (over_limit(request.size)) return false;
  MetalHeap* heap = tightest_heap(*request.pool, request.size);
  if (heap == nullptr) {
    heap = create_heap(request);
    if (heap == nullptr) return false;
    heap->gaps.push_back({0, heap->size});
  }
  const auto gap = std::find_if(heap->gaps.begin(), heap->gaps.end(),
                                [&](const HeapRange& range) { return range.size >= request.size; });
  Block* block = blocks_.make();
  block->address = heap->base + gap->offset;
  block->size = request.size;
  block->heap = heap;
  block->id = ++last_buffer_;
  *gap = {gap->offset + request.size, gap->size - request.size};
  if (gap->size == 0) heap->gaps.erase(gap);
  heap->stale = true;
  ++heap->buffers;
  request.block = block;
  return true;
}

// release_buffer of a free buffer.
void HeapModel::State::drop_buffer(Block* block, bool and_empty_heap) {
  MetalHeap* heap = block->heap;
  FreeBlocks::erase(block);
  heap->pool->free_size -= block->size;
  heap->gaps.push_back({block->address - heap->base, block->size});
  heap->stale = true;
  blocks_.drop(block);
  if (--heap->buffers == 0 && and_empty_heap) remove_heap(heap);
}

// release_available_cached_buffers: one buffer that fits, else from the largest down until the sum does.
bool HeapModel::State::drop_fitting_buffers(const HeapRequest& request) {
  HeapPool& pool = *request.pool;
  if (Block* fitting = pool.free.lower_bound(request.size)) {
    drop_buffer(fitting, true);
    return true;
  }
  uint64_t sum = 0;
  while (sum < request.size) {
    Block* largest = pool.free.largest();
    if (largest == nullptr) return false;
    sum += largest->size;
    drop_buffer(largest, true);
  }
  return true;
}

// garbage_collect_cached_buffers: the buffers that were passed over at least as often as the mean.
void HeapModel::State::collect_buffers(HeapPool& pool) {
  if (driver() < low_limit) return;
  const uint64_t target = driver() - low_limit;
  const auto age = [&pool](const Block* block) { return static_cast<double>(pool.epoch - block->freed_at); };
  std::vector<Block*> candidates = pool.free.ordered();
  double total_age = 0.0;
  for (const Block* block : candidates) total_age += age(block);
  uint64_t reclaimed = 0;
  for (bool freed = true; freed && reclaimed < target && !candidates.empty();) {
    const double threshold = total_age / static_cast<double>(candidates.size());
    freed = false;
    const auto collected = [&](Block* block) {
      if (reclaimed >= target || age(block) < threshold) return false;
      freed = true;
      reclaimed += block->size;
      total_age -= age(block);
      drop_buffer(block, block->heap->dedicated);
      return true;
    };
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), collected), candidates.end());
  }
}

}  // namespace anymps
