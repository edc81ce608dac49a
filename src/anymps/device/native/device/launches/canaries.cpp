// An allocator of host memory with margins, and the sizes of what it has given out, by address.
#include "device/launches/canaries.h"

#include "locks/locks.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

namespace anymps::canaries {
namespace {

// A group has at most 1,024 threads: one too many of them, with an element of 4 bytes each, stays within the margin behind.
constexpr size_t kBefore = 256, kBehind = size_t(4) << 10;
constexpr unsigned char kMark = 0xa7;  // no byte of a small number, of an index or of a usual float

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
    char* const start = static_cast<char*>(c10::alloc_cpu(kBefore + nbytes + kBehind)) + kBefore;
    std::memset(start - kBefore, kMark, kBefore);
    std::memset(start + nbytes, kMark, kBehind);
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

bool is_marked(const char* from, size_t count) {
  return static_cast<unsigned char>(from[0]) == kMark && std::memcmp(from, from + 1, count - 1) == 0;
}

}  // namespace

void begin() {
  static std::once_flag once;
  std::call_once(once, [] {
    c10::SetCPUAllocator(&the_allocator, /*priority=*/100);
  });
}

std::optional<Stray> stray(const void* address) {
  size_t nbytes = 0;
  {
    const std::lock_guard<Mutex> guard(lock);
    const auto found = sizes.find(address);
    if (found == sizes.end()) {
      return std::nullopt;
    }
    nbytes = found->second;
  }
  char* const start = static_cast<char*>(const_cast<void*>(address));
  if (is_marked(start - kBefore, kBefore) && is_marked(start + nbytes, kBehind)) {
    return std::nullopt;
  }
  Stray found{0, 0, nbytes};
  const auto look = [&](char* from, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (static_cast<unsigned char>(from[i]) == kMark) continue;
      if (found.count++ == 0) found.offset = from + i - start;
      from[i] = static_cast<char>(kMark);
    }
  };
  look(start + nbytes, kBehind);
  look(start - kBefore, kBefore);
  return found;
}

}  // namespace anymps::canaries
