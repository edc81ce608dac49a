// The allocator of mps: buffers in the allocator's books, what torch.accelerator asks of them, and dtypes that it refuses.
#include "device/memory/memory.h"

#include "device/memory/books.h"
#include "device/errors/fork.h"
#include "device/errors/refusals.h"
#include "device/interface/substrate.h"
#include "device/memory/waits.h"
#include "rules/rules.h"
#include "recorder/recorder.h"
#include "locks/locks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <anymps/release.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <mutex>
#include <unordered_set>

namespace anymps {
namespace {

void delete_buffer(void* context) {
  delete static_cast<Buffer*>(context);
}

template <class Base>
struct Allocation : Base {
  at::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    enter_device();
    return substrate().allocate(nbytes);
  }

  at::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // the context is a Buffer, never the pointer itself
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    this->default_copy_data(destination, source, count);
  }
};

// What torch.accelerator's memory functions ask.
struct AccountedAllocation final : Allocation<c10::DeviceAllocator> {
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    empty_device_cache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  // 2.13 fills the two byte counters and nothing else.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    fill(stats.allocated_bytes[all], books().model().allocated());
    fill(stats.reserved_bytes[all], books().model().reserved());
    if constexpr (release::accelerator_active_bytes) {
      fill(stats.active_bytes[all], books().model().allocated());
    }
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    books().model().reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex) override {
    books().model().reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const uint64_t recommended = books().recommended_max();
    const uint64_t driver = books().model().driver();
    return {driver < recommended ? recommended - driver : 0, recommended};
  }

 private:
  static void fill(c10::CachingAllocator::Stat& stat, const Statistic& from) {
    stat.current = static_cast<int64_t>(from.current);
    stat.peak = static_cast<int64_t>(from.peak);
    stat.allocated = static_cast<int64_t>(from.allocated);
    stat.freed = static_cast<int64_t>(from.freed);
  }
};

std::conditional_t<release::accelerator_memory_api, AccountedAllocation, Allocation<at::Allocator>> the_allocator;

ledger::Size size_of(const Block* block) {
  return {HeapModel::block_size(block), HeapModel::block_nbytes(block)};
}

uint32_t row_of_birth(const Block* block) {
  if (C10_LIKELY(!told_by_device()) || !ledger::is_kept() || block == nullptr) {
    return 0;
  }
  return ledger::born(size_of(block), HeapModel::block_current(block), HeapModel::block_total(block));
}

}  // namespace

Buffer::Buffer(at::DataPtr&& bytes, Block* its_block)
    : memory(std::move(bytes)), block(its_block), row(row_of_birth(its_block)) {}

Buffer::~Buffer() {
  ledger::died(row);
  books().release(block);
}

void Buffer::assign(uint8_t role, uint32_t module) {
  if (block != nullptr) {
    row = ledger::assign(row, size_of(block), static_cast<Role>(role), module);
  }
}

void install_allocator() {
  c10::SetAllocator(c10::DeviceType::MPS, &the_allocator, /*priority=*/100);
}

at::Allocator* mps_allocator() {
  return &the_allocator;
}

at::DataPtr mps_pointer(void* address, Buffer* buffer) {
  return at::DataPtr(address, buffer, &delete_buffer, kMpsDevice);
}

at::DataPtr mps_memory(size_t nbytes, c10::function_ref<at::DataPtr()> take) {
  Block* block = books().allocate(nbytes);
  at::DataPtr bytes;
  try {
    bytes = take();
  } catch (...) {
    books().release(block);
    throw;
  }
  void* address = bytes.get();
  return mps_pointer(address, new Buffer(std::move(bytes), block));
}

Buffer* buffer_of(const at::DataPtr& data) noexcept {
  if (C10_LIKELY(data.get_deleter() == &delete_buffer)) {
    return static_cast<Buffer*>(data.get_context());
  }
  const at::DataPtr& own = buffers::owner(data);  // where an observer has recorded
  return own.get_deleter() == &delete_buffer ? static_cast<Buffer*>(own.get_context()) : nullptr;
}

void check_allocatable(c10::ScalarType dtype) {
  if (C10_UNLIKELY(dtype == c10::ScalarType::Double || (dtype == c10::ScalarType::ComplexDouble && texts().complex128_refused))) {
    refuse(
        dtype == c10::ScalarType::Double ? Refusal::Float64 : Refusal::Complex128,
        allocation_rule(),
        ErrorClass::Type,
        texts().float64);
  }
}

void check_rank(size_t dimensions) {
  constexpr size_t most = 16;  // torch 2.7 to 2.15, aten/src/ATen/mps/EmptyTensor.cpp
  if (C10_UNLIKELY(dimensions > most)) {
    refuse(
        Refusal::Rank,
        allocation_rule(),
        ErrorClass::Runtime,
        "MPS supports tensors with dimensions <= 16, but got " + std::to_string(dimensions) + ".");
  }
}

// Pinned memory on the host substrate: host bytes as any other, held in the allocator's books.
namespace {

// Torch 2.14 and 2.15, MPSPinnedAllocator in the macOS wheels: a buffer of the mps allocator under a CPU address.
struct PinnedAllocator final : c10::Allocator {
  at::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return at::DataPtr(nullptr, c10::Device(c10::DeviceType::CPU));
    }
    enter_device();
    auto owner = std::make_unique<at::DataPtr>(substrate().allocate_pinned(nbytes));
    void* data = owner->get();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      live_.insert(data);
    }
    return at::DataPtr(data, owner.release(), &release, c10::Device(c10::DeviceType::CPU));
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // the context is the buffer's owner, never the pointer itself
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

  bool holds(const void* data) {
    std::lock_guard<std::mutex> lock(mutex_);
    return live_.count(data) != 0;
  }

 private:
  static void release(void* context);

  Mutex mutex_;
  std::unordered_set<const void*> live_;
};

PinnedAllocator& the_pinned_allocator() {
  static auto* allocator = new PinnedAllocator;  // never destroyed: tensors may go after static objects
  return *allocator;
}

void PinnedAllocator::release(void* context) {
  const std::unique_ptr<at::DataPtr> owner(static_cast<at::DataPtr*>(context));
  PinnedAllocator& allocator = the_pinned_allocator();
  std::lock_guard<std::mutex> lock(allocator.mutex_);
  allocator.live_.erase(owner->get());
}

// Keeps nothing: mps has no cache of host memory.
struct HostCache final : at::HostAllocator {
  at::DataPtr allocate(size_t nbytes) override {
    return pinned_allocator()->allocate(nbytes);
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
  bool record_event(void*, void*, c10::Stream) override {
    return false;  // there is no block of its own to mark
  }
  void empty_cache() override {
    meet_hazard(hazard_named("host_cache"), "torch.accelerator.empty_host_cache");  // raises, up to torch 2.14
  }
  at::HostStats get_stats() override {
    return {};
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

void install_host_cache() {
  static auto* cache = new HostCache;  // torch keeps the pointer
  at::setHostAllocator(c10::DeviceType::MPS, cache);
}

c10::Allocator* pinned_allocator() {
  if constexpr (release::pinned_memory_works) {
    return &the_pinned_allocator();
  } else {
    return mps_allocator();
  }
}

bool is_pinned(const void* data) {
  return release::pinned_memory_works && the_pinned_allocator().holds(data);
}

}  // namespace anymps
