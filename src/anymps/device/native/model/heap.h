// The allocator of the MPS backend as bookkeeping: sizes, heaps, counters and error texts, no bytes.
//
// The same trace of allocations and frees gives the numbers that the caching allocator of the named torch
// release gives on a Mac.  Three generations exist (aten/src/ATen/mps/MPSAllocator.{h,mm}):
//   G1  torch 2.7  to 2.11  five pools, automatic Metal heaps, whole-buffer reuse
//   G2  torch 2.12 to 2.13  three pools (everything shared), otherwise as G1
//   G3  torch 2.14 to 2.15  placement heaps: blocks are cut and merged (pytorch pulls 187441, 190438)
//
// What is chosen where the source leaves room:
//   * The GPU is idle whenever the allocator asks (Metal retain count 1).  The virtual device runs in order,
//     so a freed buffer is idle at once, and the branches for buffers still in flight are never taken:
//     the reuse of an oversized busy buffer, deferred heap updates, the pending-free list of G3.
//   * Where the real sets break a tie by object address, the order here is by virtual address: heap base plus
//     offset, with bases that only grow.  Equal traces therefore give equal choices.
//   * G1 and G2 leave placement inside a heap to Metal, whose policy is not published: here the lowest
//     offset that fits.  A heap's available size is, as in MPSAllocator.h (heapAvailableSize), the largest
//     free run that starts on a 16 KiB page.
//   * G1 and G2 garbage collection leaves a packed heap behind when its last buffer goes (MPSAllocator.mm,
//     garbage_collect_cached_buffers); empty_cache() does not find it afterwards.  Kept as it is.
// What is not modelled: the scalar pool (CPU scalars lifted for MPSGraph, 256 bytes each until the command
// buffer completes), MPSGraph temporaries and Metal's own buffers (give them as `driver_baseline`), pinned
// host memory, several streams and record_stream of 2.15, the debug output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace anymps {

enum class HeapGeneration { G1, G2, G3 };

// The allocator generation of torch 2.<torch_minor>.  std::invalid_argument outside 2.7 to 2.15.
HeapGeneration generation_of(int torch_minor);

struct HeapConfig {
  HeapGeneration generation = HeapGeneration::G2;
  int torch_minor = 13;
  uint64_t recommended_max = 0;  // bytes, Metal's recommendedMaxWorkingSetSize
  uint64_t max_buffer = 0;       // bytes, Metal's maxBufferLength; a request must be smaller
  double high_ratio = 1.7;       // 0 disables the limit
  double low_ratio = 1.4;        // 0 disables garbage collection; torch <= 2.12 defaults to 1.0 on discrete GPUs
  bool unified = true;
  uint64_t driver_baseline = 0;  // bytes that Metal counts for the process beside the heaps; public logs of
                                 // fresh processes show 0.4 to 4 MB, no value is certain
  uint64_t metal_limit = 0;      // driver bytes past which Metal refuses a heap; 0: never (macOS pages out)
};

// A request that is refused: RuntimeError in Python.
struct RefusedRequest : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// In every release up to 2.15 (not torch.OutOfMemoryError).
struct OutOfMemory : RefusedRequest {
  using RefusedRequest::RefusedRequest;
};
// One tensor of maxBufferLength bytes or more.
struct InvalidBufferSize : RefusedRequest {
  using RefusedRequest::RefusedRequest;
};

// RuntimeError in Python: what the allocator's constructor refuses.
struct InvalidSetting : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Like c10::CachingAllocator::Stat, in bytes.
struct Statistic {
  uint64_t current = 0;
  uint64_t peak = 0;
  uint64_t allocated = 0;  // accumulated
  uint64_t freed = 0;      // accumulated
};

struct Block;  // one per live tensor storage

// Thread-safe.  Blocks belong to the model and die with it.
class HeapModel {
 public:
  HeapModel();
  ~HeapModel();
  HeapModel(const HeapModel&) = delete;
  HeapModel& operator=(const HeapModel&) = delete;

  // Starts afresh with these settings.  Throws InvalidSetting with torch's text (nothing changes then),
  // std::invalid_argument if generation and release disagree, std::logic_error while blocks are live.
  void configure(const HeapConfig& config);

  // torch.mps.set_per_process_memory_fraction: sets the high ratio alone; frees nothing and does not look at
  // the low ratio again.  Throws InvalidSetting outside 0 to 2 (Python refuses that earlier).
  void set_memory_fraction(double fraction);

  // Null for 0 bytes, which are not accounted at all.  Throws InvalidBufferSize, OutOfMemory.
  Block* allocate(size_t nbytes);
  void release(Block* block) noexcept;  // null is allowed
  void empty_cache();
  uint64_t drains() const;  // allocations that fitted nowhere, for which the host waited until the device was done

  uint64_t current() const;  // bytes of blocks in use (torch.mps.current_allocated_memory)
  uint64_t total() const;    // bytes of heaps ("MPS allocated" of the error text)
  uint64_t driver() const;   // total() + driver_baseline (torch.mps.driver_allocated_memory)
  uint64_t peak_current() const;
  uint64_t peak_total() const;
  Statistic allocated() const;  // torch.accelerator's allocated_bytes; also active_bytes of 2.15
  Statistic reserved() const;   // torch.accelerator's reserved_bytes
  void reset_peak();
  void reset_accumulated();
  uint64_t high_limit() const;  // bytes; UINT64_MAX: unlimited
  uint64_t low_limit() const;   // bytes; UINT64_MAX: unlimited
  uint64_t live_blocks() const;

  // Of a live block.
  static uint64_t block_size(const Block* block);     // bytes it is charged with
  static uint64_t block_nbytes(const Block* block);   // bytes that were asked for
  static uint64_t block_current(const Block* block);  // current() and total() as they were just after its allocation
  static uint64_t block_total(const Block* block);
  static uint64_t block_address(const Block* block);  // virtual, deterministic; never to be dereferenced

 private:
  class State;
  std::unique_ptr<State> state_;
};

// Sizes as the messages print them: KB, MB, GB in 2.7 (MPSAllocator.mm), KiB, MiB, GiB from 2.8 (c10's
// format_size); up to and including 1024 bytes as a plain number.
std::string format_size(uint64_t bytes, int torch_minor);

// How the watermark variables are read: C strtod, so text that is no number is 0.0, "unlimited".
double parse_ratio(const char* env_text);

// A trace of allocations and frees given to the allocator of another Mac.
struct Replayed {
  uint64_t peak_allocated = 0;
  uint64_t peak_reserved = 0;
  int64_t failed = -1;    // the place in the trace of the allocation that failed, or -1
  std::string message;    // torch's text for it
};

// `trace`: a positive number is an allocation of so many bytes, -k frees the k-th allocation (from 1), 0 is an allocation of
// nothing. Throws InvalidSetting for watermarks that torch refuses, std::invalid_argument for a trace that makes no sense.
Replayed replay(const HeapConfig& config, const std::vector<int64_t>& trace);

}  // namespace anymps
