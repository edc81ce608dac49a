// A request's way: its size and pool, reuse or a new heap by the generation, and the refusal.
#include "model/heap_state.h"

#include <cassert>
#include <sstream>

namespace anymps {
namespace {

uint64_t limit_of(double ratio, uint64_t recommended) {
  return ratio == 0.0 ? kUnlimited : static_cast<uint64_t>(ratio * static_cast<double>(recommended));
}

// Written so that NaN is refused, too.
void check_ratio(const char* which, double ratio, double most) {
  if (ratio >= 0.0 && ratio <= most) return;
  std::ostringstream text;
  text << "invalid " << which << " watermark ratio " << ratio;
  throw InvalidSetting(text.str());
}

}  // namespace

void HeapModel::State::configure(const HeapConfig& wanted) {
  if (generation_of(wanted.torch_minor) != wanted.generation) {
    throw std::invalid_argument("heap model: torch 2." + std::to_string(wanted.torch_minor) +
                                " has an allocator of another generation");
  }
  if (live != 0) throw std::logic_error("heap model: configured again while blocks are live");
  if (!wanted.unified && wanted.torch_minor >= 13) {  // MPSAllocator.mm init_allocator, torch 2.13
    throw InvalidSetting("MPS backend is only supported on devices with unified memory");
  }
  check_ratio("high", wanted.high_ratio, kMaxRatio);
  check_ratio("low", wanted.low_ratio, wanted.high_ratio == 0.0 ? kMaxRatio : wanted.high_ratio);
  config = wanted;
  high_limit = limit_of(config.high_ratio, config.recommended_max);
  low_limit = limit_of(config.low_ratio, config.recommended_max);
  allocated = reserved = Statistic{};
  last_buffer_ = last_heap_ = 0;
  next_base_ = kFirstBase;
  for (HeapPool& pool : pools_) {
    pool.free.clear();
    pool.bare.clear();
    pool.heaps.clear();
    pool.free_size = pool.epoch = 0;
    pool.small = &pool != &pools_[kLargePool];
    pool.shared = config.generation != HeapGeneration::G1 || &pool == &pools_[kTinyPool];
    pool.min_split = pool.small ? kAlignment : kMinSplitLarge;
  }
  blocks_.clear();
  heaps_.clear();
}

void HeapModel::State::set_high_ratio(double ratio) {
  check_ratio("high", ratio, kMaxRatio);
  config.high_ratio = ratio;
  high_limit = limit_of(ratio, config.recommended_max);
}

// createHeapBlock (2.7 to 2.13), getHeapTier (2.14).
uint64_t HeapModel::State::heap_size_for(uint64_t size, bool pressure, bool* dedicated) const {
  *dedicated = false;
  if (size <= kMaxSmall) return kSmallHeap;
  if (size < kMinLarge) return kLargeHeap;
  if (size < xlarge_heap() / 2 && !pressure) return xlarge_heap();
  *dedicated = true;
  return round_up(size, kRoundLarge);
}

uint64_t HeapModel::State::charged_size(uint64_t nbytes) const {
  const uint64_t aligned = round_up(nbytes, kAlignment);
  if (!placement() || aligned <= kMaxSmall) return aligned;
  // 2.14, pytorch pull 187441: 32 steps per power of two, unless that leaves the heap tier or Metal's limit.
  uint64_t power = kMaxSmall;
  while (power <= aligned / 2) power *= 2;
  const uint64_t bucketed = round_up(aligned, std::max(power / 32, kPage));
  const auto tier = [](uint64_t size) { return size < kMinLarge ? 0 : size < kXLargeHeap / 2 ? 1 : 2; };
  return bucketed >= config.max_buffer || tier(bucketed) != tier(aligned) ? aligned : bucketed;
}

HeapPool& HeapModel::State::pool_for(uint64_t nbytes, uint64_t size) {
  if (config.generation == HeapGeneration::G1 && nbytes <= kMaxScalar && config.unified) return pools_[kTinyPool];
  return pools_[size <= kMaxSmall ? kSmallPool : kLargePool];
}

Block* HeapModel::State::allocate(uint64_t nbytes) {
  if (nbytes == 0) return nullptr;
  if (nbytes >= config.max_buffer) {
    if (config.max_buffer == 0) throw std::logic_error("heap model: used before it was configured");
    throw InvalidBufferSize("Invalid buffer size: " + format_size(nbytes, config.torch_minor));
  }
  HeapRequest request;
  request.nbytes = nbytes;
  request.size = charged_size(nbytes);
  request.pool = &pool_for(nbytes, request.size);
  // getLowWatermarkValue counts whole MiB, so pressure begins less than 1 MiB below the limit.
  request.pressure = !request.pool->small && low_limit != kUnlimited &&
                     static_cast<int64_t>(low_limit - driver()) / static_cast<int64_t>(kMiB) <= 0;
  if (!fulfil(request)) fail(request);
  Block* block = request.block;
  block->nbytes = nbytes;
  block->in_use = true;
  ++live;
  increase(allocated, block->size);  // the block's size, not nbytes
  block->current = allocated.current;
  block->total = reserved.current;
  return block;
}

// alloc_buffer_block.  Its ALLOCATION_FAILED callbacks free nothing in a stock torch; the retry after them stays.
bool HeapModel::State::fulfil(HeapRequest& request) {
  HeapPool& pool = *request.pool;
  if (placement()) {
    if (take_block(request)) return true;
    if (request.pressure && request.size < pool.free_size && driver() >= low_limit) {
      drop_free_heaps(pool, driver() - low_limit);
    }
    if (place_heap(request) || take_block(request)) return true;
    if (drop_free_heaps(pool, request.size) > 0 && place_heap(request)) return true;
    drain();
    return take_block(request) || place_heap(request);
  }
  if (take_buffer(request)) return true;
  if (request.pressure && request.size < pool.free_size) collect_buffers(pool);
  if (place_buffer(request) || take_buffer(request)) return true;
  if (drop_fitting_buffers(request) && place_buffer(request)) return true;
  drain();
  return place_buffer(request);
}

// The last resort: the stream is drained, then every cached buffer goes.
void HeapModel::State::drain() {
  ++drains;
  empty_cache();
}

void HeapModel::State::fail(const HeapRequest& request) const {
  const auto text = [this](uint64_t bytes) { return format_size(bytes, config.torch_minor); };
  std::string message = "MPS backend out of memory (MPS allocated: " + text(reserved.current) +
                        ", other allocations: " + text(driver() - reserved.current);
  if (high_limit != kUnlimited) message += ", max allowed: " + text(high_limit);
  message += "). Tried to allocate " + text(request.size) + " on " + (request.pool->shared ? "shared" : "private") +
             " pool.";
  if (high_limit != kUnlimited) {
    message += " Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
               "(may cause system failure).";
  }
  throw OutOfMemory(message);
}

MetalHeap* HeapModel::State::create_heap(const HeapRequest& request) {
  bool dedicated = false;
  const uint64_t size = heap_size_for(request.size, request.pressure, &dedicated);
  if (config.metal_limit != 0 && driver() + size > config.metal_limit) return nullptr;
  MetalHeap* heap = heaps_.make();
  heap->base = next_base_;
  heap->size = size;
  heap->pool = request.pool;
  heap->id = ++last_heap_;
  heap->dedicated = dedicated;
  next_base_ += size;
  increase(reserved, size);
  request.pool->heaps.push_back(heap);
  return heap;
}

void HeapModel::State::remove_heap(MetalHeap* heap) {
  decrease(reserved, heap->size);
  auto& heaps = heap->pool->heaps;
  heaps.erase(std::find(heaps.begin(), heaps.end(), heap));
  heaps_.drop(heap);
}

// free_buffer: back to the free set at once, whatever the GPU does (serial queue, hazard tracking).
void HeapModel::State::release(Block* block) {
  assert(block->in_use);
  MetalHeap* heap = block->heap;
  HeapPool& pool = *heap->pool;
  block->in_use = false;
  --live;
  decrease(allocated, block->size);
  pool.free_size += block->size;
  pool.free.insert(block);
  block->freed_at = pool.epoch;
  heap->free_bytes += block->size;
  heap->max_free_run = heap->free_bytes;
}

void HeapModel::State::empty_cache() {
  for (HeapPool& pool : pools_) {
    if (placement()) {
      drop_free_heaps(pool, kUnlimited);
    } else {
      for (Block* block : pool.free.ordered()) drop_buffer(block, true);
    }
  }
}

}  // namespace anymps
