// Generation G3 of the allocator: blocks are placed in heaps by hand, cut and merged.
#include "model/heap_state.h"

namespace anymps {

// get_free_buffer: a cached buffer that needs no cut, else the smallest free range, else a merged one.
bool HeapModel::State::take_block(HeapRequest& request) {
  if (over_limit(request.size)) return false;
  HeapPool& pool = *request.pool;
  Block* block = pool.free.lower_bound(request.size);
  if (block == nullptr || block->size - request.size >= pool.min_split) {
    Block* bare = pool.bare.lower_bound(request.size);
    if (block == nullptr || (bare != nullptr && before(bare, block))) block = bare;
  }
  if (block == nullptr) return merge_blocks(request);
  cut(request, block);
  return true;
}

// split_free_block
void HeapModel::State::cut(HeapRequest& request, Block* block) {
  HeapPool& pool = *request.pool;
  MetalHeap* heap = block->heap;
  const uint64_t rest = block->size - request.size;
  FreeBlocks::erase(block);
  pool.free_size -= block->size;
  heap->free_bytes -= block->size;
  if (rest >= pool.min_split) {
    Block* remainder = blocks_.make();
    remainder->address = block->address + request.size;
    remainder->size = rest;
    remainder->heap = heap;
    remainder->next = block->next;
    block->next = remainder;
    block->size = request.size;
    block->id = 0;  // its Metal buffer spanned the remainder, too
    insert_free(pool, remainder);
    pool.free_size += rest;
    heap->free_bytes += rest;
  }
  if (block->id == 0) block->id = ++last_buffer_;
  heap->max_free_run = std::min(heap->max_free_run, heap->free_bytes);
  request.block = block;
}

// coalesce_free_blocks: the first run of neighbours that is long enough, in the oldest heap that has one.
bool HeapModel::State::merge_blocks(HeapRequest& request) {
  HeapPool& pool = *request.pool;
  for (MetalHeap* heap : pool.heaps) {
    if (heap->max_free_run < request.size) continue;
    uint64_t run = 0;
    uint64_t largest = 0;
    Block* first = nullptr;
    for (Block* block = heap->first; block != nullptr; block = block->next) {
      if (block->in_use) {
        run = 0;
        continue;
      }
      if (run == 0) first = block;
      run += block->size;
      largest = std::max(largest, run);
      if (run < request.size) continue;
      Block* after = block->next;
      FreeBlocks::erase(first);
      for (Block* absorbed = first->next; absorbed != after;) {
        Block* next = absorbed->next;
        FreeBlocks::erase(absorbed);
        blocks_.drop(absorbed);
        absorbed = next;
      }
      first->size = run;
      first->next = after;
      first->id = 0;
      insert_free(pool, first);
      cut(request, first);
      return true;
    }
    heap->max_free_run = largest;
  }
  return false;
}

// alloc_heap
bool HeapModel::State::place_heap(HeapRequest& request) {
  if (over_limit(request.size)) return false;
  MetalHeap* heap = create_heap(request);
  if (heap == nullptr) return false;
  Block* block = blocks_.make();
  block->address = heap->base;
  block->size = heap->size;
  block->heap = heap;
  heap->first = block;
  heap->free_bytes = heap->max_free_run = heap->size;
  insert_free(*request.pool, block);
  request.pool->free_size += heap->size;
  cut(request, block);
  return true;
}

// release_free_heaps: whole heaps, oldest first, until `target` bytes; returns the bytes released.
uint64_t HeapModel::State::drop_free_heaps(HeapPool& pool, uint64_t target) {
  uint64_t released = 0;
  const auto dropped = [&](MetalHeap* heap) {
    if (released >= target || heap->free_bytes != heap->size) return false;
    for (Block* block = heap->first; block != nullptr;) {
      Block* next = block->next;
      FreeBlocks::erase(block);
      blocks_.drop(block);
      block = next;
    }
    pool.free_size -= heap->size;
    released += heap->size;
    decrease(reserved, heap->size);
    heaps_.drop(heap);
    return true;
  };
  pool.heaps.erase(std::remove_if(pool.heaps.begin(), pool.heaps.end(), dropped), pool.heaps.end());
  return released;
}

}  // namespace anymps
