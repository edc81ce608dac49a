// An allocator of host memory with margins, and the sizes of what it has given out, by address.
#include "device/launches/canaries.h"

#include "locks/locks.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <mutex>
#include <unordered_map>

namespace anymps::canaries {
namespace {

using margins::kBefore, margins::kLeastBehind;

Mutex lock;
std::unordered_map<const void*, size_t> sizes;

// Also what is older than this allocator, or nothing: libraries that torch computes with ask whichever is there.
void release(void* start) {
  bool ours;
  {
    const std::lock_guard<Mutex> guard(lock);
    ours = sizes.erase(start) != 0;
  }
  c10::free_cpu(ours ? static_cast<char*>(start) - kBefore : start);
}

class Allocator final : public c10::Allocator {
 public:
  at::DataPtr allocate(size_t nbytes) override {
    const c10::Device cpu(c10::DeviceType::CPU);
    if (nbytes == 0) {
      return {nullptr, cpu};
    }
    char* const start = static_cast<char*>(c10::alloc_cpu(kBefore + nbytes + kLeastBehind)) + kBefore;
    margins::mark_around(start, nbytes, kLeastBehind);
    const std::lock_guard<Mutex> guard(lock);
    sizes[start] = nbytes;
    return {start, start, &release, cpu};
  }

  at::DeleterFnPtr raw_deleter() const override {
    return &release;
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

Allocator the_allocator;

}  // namespace

void begin() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetCPUAllocator(&the_allocator, /*priority=*/100);
  });
}

std::optional<margins::Stray> stray(const void* address) {
  size_t nbytes = 0;
  {
    const std::lock_guard<Mutex> guard(lock);
    const auto found = sizes.find(address);
    if (found == sizes.end()) {
      return std::nullopt;
    }
    nbytes = found->second;
  }
  return margins::stray_beside(static_cast<char*>(const_cast<void*>(address)), nbytes, kLeastBehind);
}

}  // namespace anymps::canaries
