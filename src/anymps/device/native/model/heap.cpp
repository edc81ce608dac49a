// The allocator of the MPS backend as bookkeeping; heap.h says what is modelled and what is not.
#include "model/heap.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstdlib>
#include <deque>
#include <iomanip>
#include <limits>
#include <sstream>
#include <thread>
#include <vector>

namespace anymps {
namespace {

// Constants of MPSAllocator.h, equal in torch 2.7 to 2.15 unless noted.
constexpr uint64_t kMiB = 1048576;
constexpr uint64_t kMaxSmall = kMiB;             // at most this: small pool
constexpr uint64_t kMinLarge = 10 * kMiB;        // below: packed in 32 MiB heaps
constexpr uint64_t kRoundLarge = 2 * kMiB;       // granularity of dedicated heaps
constexpr uint64_t kSmallHeap = 8 * kMiB;
constexpr uint64_t kLargeHeap = 32 * kMiB;       // also the slack of whole-buffer reuse in G1 and G2
constexpr uint64_t kXLargeHeap = 1024 * kMiB;
constexpr uint64_t kXLargeHeapDiscrete = 128 * kMiB;  // torch <= 2.12, kXLargeHeapD
constexpr uint64_t kMaxScalar = 8;               // G1: at most this goes to the shared-small pool
constexpr uint64_t kMinSplitLarge = kMiB;        // G3: a smaller remainder stays with its block
constexpr uint64_t kPage = 16384;                // vm_page_size of Apple silicon
constexpr uint64_t kAlignment = 256;             // heapBufferSizeAndAlign on Apple silicon (pytorch issue 193838)
constexpr double kMaxRatio = 2.0;
constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();
constexpr uint64_t kFirstBase = uint64_t{1} << 32;

constexpr uint64_t round_up(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

struct Pool;
struct Bucket;

struct Range {
  uint64_t offset = 0;
  uint64_t size = 0;
};

struct Heap {
  uint64_t base = 0;
  uint64_t size = 0;
  Pool* pool = nullptr;
  uint32_t id = 0;
  bool dedicated = false;  // made for one buffer ("not split")
  // G1, G2: the free ranges, in offset order and joined unless `stale`.
  uint32_t buffers = 0;
  bool stale = false;
  uint64_t available = 0;
  std::vector<Range> gaps;
  // G3: the blocks, in offset order.
  Block* first = nullptr;
  uint64_t free_bytes = 0;
  uint64_t max_free_run = 0;  // upper bound of what merging can yield

  // Largest free run that starts on a page (maxAvailableSizeWithAlignment:vm_page_size).
  uint64_t measure_available() {
    if (stale) {
      std::sort(gaps.begin(), gaps.end(), [](const Range& a, const Range& b) { return a.offset < b.offset; });
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

// Nodes that never move and are used again, so that a steady state never reaches malloc.
template <class T>
class Nodes {
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

}  // namespace

struct Block {
  uint64_t address = 0;
  uint64_t size = 0;
  uint64_t nbytes = 0;
  Heap* heap = nullptr;
  Bucket* bucket = nullptr;  // where it was free last
  Block* next = nullptr;     // G3: in the heap, by offset
  uint64_t freed_at = 0;     // G1, G2: epoch of its pool when it was freed
  uint32_t id = 0;           // of its Metal buffer; 0: a free range without one (G3)
  uint32_t slot = 0;         // in its bucket
  bool in_use = false;
};

namespace {

class FreeSet;

// The free blocks of one size: a binary heap by address.
struct Bucket {
  struct Entry {
    uint64_t address;
    Block* block;
  };
  uint64_t size = 0;
  FreeSet* owner = nullptr;
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
class FreeSet {
 public:
  void insert(Block* block) {
    Bucket* bucket = block->bucket;
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
    Bucket& bucket = *block->bucket;
    const size_t slot = block->slot;
    const Bucket::Entry moved = bucket.entries.back();
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
    if (const Bucket* exact = find(size); exact != nullptr && !exact->entries.empty()) {
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
    return std::max_element(entries.begin(), entries.end(), [](const Bucket::Entry& a, const Bucket::Entry& b) {
             return a.address < b.address;
           })->block;
  }

  std::vector<Block*> ordered() const {
    std::vector<Block*> blocks;
    for (const Bucket* bucket : listed_) {
      for (const Bucket::Entry& entry : bucket->entries) blocks.push_back(entry.block);
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
  std::vector<Bucket*>::iterator position(uint64_t size) {
    return std::lower_bound(listed_.begin(), listed_.end(), size,
                            [](const Bucket* bucket, uint64_t wanted) { return bucket->size < wanted; });
  }

  // Where `size` is, or should go, in a table of a power of two with free places.
  size_t probe(uint64_t size) const {
    const size_t mask = table_.size() - 1;
    size_t at = static_cast<size_t>((size / kAlignment * 0x9E3779B97F4A7C15u) >> 32) & mask;
    while (table_[at] != nullptr && table_[at]->size != size) at = (at + 1) & mask;
    return at;
  }
  Bucket* find(uint64_t size) const { return table_.empty() ? nullptr : table_[probe(size)]; }

  Bucket* make(uint64_t size) {
    if (Bucket* known = find(size)) return known;
    Bucket& bucket = buckets_.emplace_back();
    bucket.size = size;
    bucket.owner = this;
    if (table_.size() < 2 * buckets_.size()) {
      table_.assign(std::max<size_t>(64, 2 * table_.size()), nullptr);
      for (Bucket& each : buckets_) table_[probe(each.size)] = &each;
    } else {
      table_[probe(size)] = &bucket;
    }
    return &bucket;
  }

  std::deque<Bucket> buckets_;
  std::vector<Bucket*> table_;
  std::vector<Bucket*> listed_;  // by size; holds every bucket that is not empty
};

struct Pool {
  bool small = false;
  bool shared = false;
  uint64_t min_split = 0;    // G3
  uint64_t free_size = 0;    // bytes of free blocks ("available_size")
  uint64_t epoch = 0;        // G1, G2: a free buffer's gc_count is epoch - freed_at
  std::vector<Heap*> heaps;  // oldest first, which is also by address
  FreeSet free;              // blocks with a Metal buffer
  FreeSet bare;              // G3: blocks without one
};

struct Request {
  uint64_t nbytes = 0;
  uint64_t size = 0;  // as charged against the limits
  Pool* pool = nullptr;
  bool pressure = false;
  Block* block = nullptr;  // the answer
};

bool before(const Block* a, const Block* b) {
  return a->size != b->size ? a->size < b->size : a->address < b->address;
}

void increase(Statistic& statistic, uint64_t bytes) {
  statistic.current += bytes;
  statistic.allocated += bytes;
  statistic.peak = std::max(statistic.peak, statistic.current);
}

void decrease(Statistic& statistic, uint64_t bytes) {
  statistic.current -= bytes;
  statistic.freed += bytes;
}

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

class HeapModel::State {
 public:
  mutable SpinLock lock;
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

  std::array<Pool, kPools> pools_;
  Nodes<Block> blocks_;
  Nodes<Heap> heaps_;
  uint32_t last_buffer_ = 0;
  uint32_t last_heap_ = 0;
  uint64_t next_base_ = kFirstBase;

  bool placement() const { return config.generation == HeapGeneration::G3; }
  bool over_limit(uint64_t size) const { return high_limit != kUnlimited && driver() + size > high_limit; }
  uint64_t xlarge_heap() const { return config.unified ? kXLargeHeap : kXLargeHeapDiscrete; }
  uint64_t heap_size_for(uint64_t size, bool pressure, bool* dedicated) const;
  uint64_t charged_size(uint64_t nbytes) const;
  Pool& pool_for(uint64_t nbytes, uint64_t size);
  bool fulfil(Request& request);
  [[noreturn]] void fail(const Request& request) const;
  Heap* create_heap(const Request& request);
  void remove_heap(Heap* heap);

  // G1, G2
  bool take_buffer(Request& request);
  bool place_buffer(Request& request);
  void drop_buffer(Block* block, bool and_empty_heap);
  bool drop_fitting_buffers(const Request& request);
  void collect_buffers(Pool& pool);
  static Heap* tightest_heap(const Pool& pool, uint64_t size);

  // G3
  bool take_block(Request& request);
  bool merge_blocks(Request& request);
  bool place_heap(Request& request);
  void cut(Request& request, Block* block);
  uint64_t drop_free_heaps(Pool& pool, uint64_t target);
  static void insert_free(Pool& pool, Block* block) { (block->id != 0 ? pool.free : pool.bare).insert(block); }
};

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
  for (Pool& pool : pools_) {
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

Pool& HeapModel::State::pool_for(uint64_t nbytes, uint64_t size) {
  if (config.generation == HeapGeneration::G1 && nbytes <= kMaxScalar && config.unified) return pools_[kTinyPool];
  return pools_[size <= kMaxSmall ? kSmallPool : kLargePool];
}

Block* HeapModel::State::allocate(uint64_t nbytes) {
  if (nbytes == 0) return nullptr;
  if (nbytes >= config.max_buffer) {
    if (config.max_buffer == 0) throw std::logic_error("heap model: used before it was configured");
    throw InvalidBufferSize("Invalid buffer size: " + format_size(nbytes, config.torch_minor));
  }
  Request request;
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
  return block;
}

// alloc_buffer_block.  Its ALLOCATION_FAILED callbacks free nothing in a stock torch; the retry after them stays.
bool HeapModel::State::fulfil(Request& request) {
  Pool& pool = *request.pool;
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

void HeapModel::State::fail(const Request& request) const {
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

Heap* HeapModel::State::create_heap(const Request& request) {
  bool dedicated = false;
  const uint64_t size = heap_size_for(request.size, request.pressure, &dedicated);
  if (config.metal_limit != 0 && driver() + size > config.metal_limit) return nullptr;
  Heap* heap = heaps_.make();
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

void HeapModel::State::remove_heap(Heap* heap) {
  decrease(reserved, heap->size);
  auto& heaps = heap->pool->heaps;
  heaps.erase(std::find(heaps.begin(), heaps.end(), heap));
  heaps_.drop(heap);
}

// free_buffer: back to the free set at once, whatever the GPU does (serial queue, hazard tracking).
void HeapModel::State::release(Block* block) {
  assert(block->in_use);
  Heap* heap = block->heap;
  Pool& pool = *heap->pool;
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
  for (Pool& pool : pools_) {
    if (placement()) {
      drop_free_heaps(pool, kUnlimited);
    } else {
      for (Block* block : pool.free.ordered()) drop_buffer(block, true);
    }
  }
}

// ---- G1, G2 -------------------------------------------------------------------------------------------------

// get_free_buffer: the smallest buffer that fits, whole, unless it wastes more than 32 MiB.
bool HeapModel::State::take_buffer(Request& request) {
  if (over_limit(request.size)) return false;
  Pool& pool = *request.pool;
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
  FreeSet::erase(block);
  pool.free_size -= block->size;
  request.block = block;
  return true;
}

Heap* HeapModel::State::tightest_heap(const Pool& pool, uint64_t size) {
  Heap* best = nullptr;
  for (Heap* heap : pool.heaps) {
    const uint64_t available = heap->measure_available();
    if (available >= size && (best == nullptr || available < best->available)) best = heap;
  }
  return best;
}

// alloc_buffer: cut a new buffer from the tightest heap, or from a new one.
bool HeapModel::State::place_buffer(Request& request) {
  if (over_limit(request.size)) return false;
  Heap* heap = tightest_heap(*request.pool, request.size);
  if (heap == nullptr) {
    heap = create_heap(request);
    if (heap == nullptr) return false;
    heap->gaps.push_back({0, heap->size});
  }
  const auto gap = std::find_if(heap->gaps.begin(), heap->gaps.end(),
                                [&](const Range& range) { return range.size >= request.size; });
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
  Heap* heap = block->heap;
  FreeSet::erase(block);
  heap->pool->free_size -= block->size;
  heap->gaps.push_back({block->address - heap->base, block->size});
  heap->stale = true;
  blocks_.drop(block);
  if (--heap->buffers == 0 && and_empty_heap) remove_heap(heap);
}

// release_available_cached_buffers: one buffer that fits, else from the largest down until the sum does.
bool HeapModel::State::drop_fitting_buffers(const Request& request) {
  Pool& pool = *request.pool;
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
void HeapModel::State::collect_buffers(Pool& pool) {
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

// ---- G3 -----------------------------------------------------------------------------------------------------

// get_free_buffer: a cached buffer that needs no cut, else the smallest free range, else a merged one.
bool HeapModel::State::take_block(Request& request) {
  if (over_limit(request.size)) return false;
  Pool& pool = *request.pool;
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
void HeapModel::State::cut(Request& request, Block* block) {
  Pool& pool = *request.pool;
  Heap* heap = block->heap;
  const uint64_t rest = block->size - request.size;
  FreeSet::erase(block);
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
bool HeapModel::State::merge_blocks(Request& request) {
  Pool& pool = *request.pool;
  for (Heap* heap : pool.heaps) {
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
      FreeSet::erase(first);
      for (Block* absorbed = first->next; absorbed != after;) {
        Block* next = absorbed->next;
        FreeSet::erase(absorbed);
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
bool HeapModel::State::place_heap(Request& request) {
  if (over_limit(request.size)) return false;
  Heap* heap = create_heap(request);
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
uint64_t HeapModel::State::drop_free_heaps(Pool& pool, uint64_t target) {
  uint64_t released = 0;
  const auto dropped = [&](Heap* heap) {
    if (released >= target || heap->free_bytes != heap->size) return false;
    for (Block* block = heap->first; block != nullptr;) {
      Block* next = block->next;
      FreeSet::erase(block);
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

// ---- The public face ----------------------------------------------------------------------------------------

HeapModel::HeapModel() : state_(std::make_unique<State>()) {}
HeapModel::~HeapModel() = default;

void HeapModel::configure(const HeapConfig& config) {
  HeapGuard guard(state_->lock);
  state_->configure(config);
}

void HeapModel::set_memory_fraction(double fraction) {
  HeapGuard guard(state_->lock);
  state_->set_high_ratio(fraction);
}

Block* HeapModel::allocate(size_t nbytes) {
  HeapGuard guard(state_->lock);
  return state_->allocate(nbytes);
}

void HeapModel::release(Block* block) noexcept {
  if (block == nullptr) return;
  HeapGuard guard(state_->lock);
  state_->release(block);
}

uint64_t HeapModel::drains() const {
  return state_->drains.load(std::memory_order_relaxed);
}

void HeapModel::empty_cache() {
  HeapGuard guard(state_->lock);
  state_->empty_cache();
}

Statistic HeapModel::allocated() const {
  HeapGuard guard(state_->lock);
  return state_->allocated;
}

Statistic HeapModel::reserved() const {
  HeapGuard guard(state_->lock);
  return state_->reserved;
}

uint64_t HeapModel::driver() const {
  HeapGuard guard(state_->lock);
  return state_->driver();
}

uint64_t HeapModel::high_limit() const {
  HeapGuard guard(state_->lock);
  return state_->high_limit;
}

uint64_t HeapModel::low_limit() const {
  HeapGuard guard(state_->lock);
  return state_->low_limit;
}

uint64_t HeapModel::live_blocks() const {
  HeapGuard guard(state_->lock);
  return state_->live;
}

void HeapModel::reset_peak() {
  HeapGuard guard(state_->lock);
  for (Statistic* each : {&state_->allocated, &state_->reserved}) each->peak = each->current;
}

void HeapModel::reset_accumulated() {
  HeapGuard guard(state_->lock);
  for (Statistic* each : {&state_->allocated, &state_->reserved}) each->allocated = each->freed = 0;
}

uint64_t HeapModel::current() const { return allocated().current; }
uint64_t HeapModel::total() const { return reserved().current; }
uint64_t HeapModel::peak_current() const { return allocated().peak; }
uint64_t HeapModel::peak_total() const { return reserved().peak; }

uint32_t HeapModel::block_id(const Block* block) { return block->id; }
uint64_t HeapModel::block_size(const Block* block) { return block->size; }
uint64_t HeapModel::block_nbytes(const Block* block) { return block->nbytes; }
uint64_t HeapModel::block_address(const Block* block) { return block->address; }
uint64_t HeapModel::block_offset(const Block* block) { return block->address - block->heap->base; }
uint32_t HeapModel::heap_id(const Block* block) { return block->heap->id; }
uint64_t HeapModel::heap_size(const Block* block) { return block->heap->size; }
bool HeapModel::is_shared(const Block* block) { return block->heap->pool->shared; }

HeapGeneration generation_of(int torch_minor) {
  if (torch_minor < 7 || torch_minor > 15) {
    throw std::invalid_argument("heap model: the allocator of torch 2." + std::to_string(torch_minor) +
                                " is not known (2.7 to 2.15 are)");
  }
  if (torch_minor < 12) return HeapGeneration::G1;
  return torch_minor < 14 ? HeapGeneration::G2 : HeapGeneration::G3;
}

std::string format_size(uint64_t bytes, int torch_minor) {
  const bool old = torch_minor < 8;  // 2.7 also narrows to float before it divides
  const double value = old ? static_cast<double>(static_cast<float>(bytes)) : static_cast<double>(bytes);
  const std::string suffix = old ? "B" : "iB";
  std::ostringstream text;
  text << std::fixed << std::setprecision(2);
  if (bytes <= 1024) {
    text << bytes << " bytes";
  } else if (bytes <= kMiB) {
    text << value / 1024.0 << " K" << suffix;
  } else if (bytes <= 1024 * kMiB) {
    text << value / 1048576.0 << " M" << suffix;
  } else {
    text << value / 1073741824.0 << " G" << suffix;
  }
  return text.str();
}

double parse_ratio(const char* env_text) { return std::strtod(env_text, nullptr); }

}  // namespace anymps
