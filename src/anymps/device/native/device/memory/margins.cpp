// Margins of buffers: 256 bytes before, and 4 to 16 KiB behind, as long as the buffer itself is.
#include "device/memory/margins.h"

#include "device/interface/substrate.h"
#include "locks/locks.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

namespace anymps::margins {
namespace {

constexpr size_t kMost = size_t(16) << 10;
constexpr size_t kLarge = size_t(64) << 10;  // margins of such buffers are few pages, untouched until a shader runs
constexpr unsigned char kMark = 0xa7;  // no byte of a small number, of an index or of a usual float

std::atomic<bool> begun{false};

size_t behind(size_t nbytes) {
  return std::clamp(nbytes, kLeastBehind, kMost);
}

at::DataPtr with_margins(size_t nbytes, Placement& placement) {
  at::DataPtr memory = c10::GetCPUAllocator()->allocate(kBefore + nbytes + behind(nbytes));
  placement = {static_cast<char*>(memory.get()) + kBefore, nbytes, behind(nbytes), false};
  return memory;
}

void mark(Placement& placement) {
  mark_around(placement.start, placement.nbytes, placement.behind);
  placement.marked = true;
}

bool is_marked(const char* from, size_t count) {
  // Each byte is the one before it: as fast as the library's memcmp.
  return static_cast<unsigned char>(from[0]) == kMark && std::memcmp(from, from + 1, count - 1) == 0;
}

// Of a buffer whose bytes are this machine's.
Buffer* buffer_behind(const at::Tensor& tensor) {
  if (!tensor.has_storage() || !substrate().holds_data()) {
    return nullptr;
  }
  Buffer* buffer = buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
  return buffer != nullptr && buffer->memory.device().is_cpu() ? buffer : nullptr;
}

void add_copy(const c10::Storage& storage, std::vector<Copy>& copies) {
  for (const Copy& copy : copies) {
    if (copy.storage.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      return;
    }
  }
  Copy copy;
  copy.storage = storage;
  copy.bytes = static_cast<char*>(storage.mutable_data());
  copy.memory = with_margins(storage.nbytes(), copy.placement);
  copy.before = c10::GetCPUAllocator()->allocate(storage.nbytes());
  std::memcpy(copy.placement.start, copy.bytes, storage.nbytes());
  std::memcpy(copy.before.get(), copy.placement.start, storage.nbytes());
  mark(copy.placement);
  copies.push_back(std::move(copy));
}

Placement* placement_of(const at::Tensor& tensor, std::vector<Copy>& copies) {
  Buffer* buffer = buffer_behind(tensor);
  if (buffer == nullptr || buffer->placement.marked) {
    return buffer == nullptr ? nullptr : &buffer->placement;
  }
  for (Copy& copy : copies) {
    if (copy.storage.unsafeGetStorageImpl() == tensor.storage().unsafeGetStorageImpl()) {
      return &copy.placement;
    }
  }
  return nullptr;
}

}  // namespace

void mark_around(char* start, size_t nbytes, size_t behind) {
  std::memset(start - kBefore, kMark, kBefore);
  std::memset(start + nbytes, kMark, behind);
}

std::optional<Stray> stray_beside(char* start, size_t nbytes, size_t behind) {
  if (C10_LIKELY(is_marked(start - kBefore, kBefore) && is_marked(start + nbytes, behind))) {
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
  look(start + nbytes, behind);
  look(start - kBefore, kBefore);
  return found;
}

void begin() {
  begun.store(true, std::memory_order_relaxed);
}

at::DataPtr allocate(size_t nbytes, Placement& placement) {
  const bool has_margins = nbytes >= kLarge || begun.load(std::memory_order_relaxed);
  return has_margins ? with_margins(nbytes, placement) : c10::GetCPUAllocator()->allocate(nbytes);
}

void guard(const at::Tensor& tensor, std::vector<Copy>& copies) {
  Buffer* buffer = buffer_behind(tensor);
  if (buffer == nullptr) {
    return;
  }
  if (C10_UNLIKELY(buffer->placement.start == nullptr)) {
    add_copy(tensor.storage(), copies);
  } else if (C10_UNLIKELY(!buffer->placement.marked)) {
    mark(buffer->placement);
  }
}

std::optional<Stray> stray(const at::Tensor& tensor, std::vector<Copy>& copies) {
  const Placement* placement = placement_of(tensor, copies);
  if (placement == nullptr) {
    return std::nullopt;
  }
  return stray_beside(placement->start, placement->nbytes, placement->behind);
}

void carry_back(const std::vector<Copy>& copies) {
  constexpr size_t kPiece = 256;
  for (const Copy& copy : copies) {
    if (copy.storage.data() != copy.bytes) {
      continue;  // a handler of a signal has given it other bytes meanwhile
    }
    const char *now = copy.placement.start, *before = static_cast<const char*>(copy.before.get());
    for (size_t from = 0; from < copy.placement.nbytes; from += kPiece) {
      const size_t to = std::min(from + kPiece, copy.placement.nbytes);
      if (std::memcmp(now + from, before + from, to - from) == 0) {
        continue;
      }
      for (size_t i = from; i < to; ++i) {
        if (now[i] != before[i]) copy.bytes[i] = now[i];
      }
    }
  }
}

}  // namespace anymps::margins

// An allocator of host memory with margins, and the sizes of what it has given out, by address.
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
