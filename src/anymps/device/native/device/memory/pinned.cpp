// Pinned memory on the host substrate: host bytes as any other, held in the allocator's books.
#include "device/memory/pinned.h"

#include "device/errors/faults.h"
#include "device/errors/fork.h"
#include "device/memory/memory.h"
#include "device/interface/substrate.h"
#include "locks/locks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <anymps/release.h>

#include <mutex>
#include <unordered_set>

namespace anymps {

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
    meet_host_cache_hazard();  // raises, up to torch 2.14
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
