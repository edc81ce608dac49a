// Margins of buffers: 256 bytes before, and 4 to 16 KiB behind, as long as the buffer itself is.
#include "device/memory/margins.h"

#include "device/memory/memory.h"
#include "device/substrates/substrate.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>
#include <vector>

namespace anymps::margins {
namespace {

// A group has at most 1,024 threads: one too many of them, with an element of 4 bytes each, stays within the least margin.
constexpr size_t kBefore = 256, kLeast = size_t(4) << 10, kMost = size_t(16) << 10;
constexpr unsigned char kMark = 0xa7;  // no byte of a small number, of an index or of a usual float

std::atomic<bool> begun{false};

// Launches that run, and the memory that buffers have been moved from meanwhile: another thread's kernel may read it.
std::atomic<int> running{0};
std::mutex left_lock;
std::vector<at::DataPtr> left;

size_t behind(size_t nbytes) {
  return std::clamp(nbytes, kLeast, kMost);
}

at::DataPtr with_margins(size_t nbytes, Room& room) {
  at::DataPtr memory = c10::GetCPUAllocator()->allocate(kBefore + nbytes + behind(nbytes));
  room = {static_cast<char*>(memory.get()) + kBefore, nbytes, behind(nbytes), false};
  return memory;
}

bool is_marked(const char* from, size_t count) {
  // Each byte is the one before it: as fast as the library's memcmp.
  return static_cast<unsigned char>(from[0]) == kMark && std::memcmp(from, from + 1, count - 1) == 0;
}

Buffer* buffer_behind(const at::Tensor& tensor) {
  if (!tensor.has_storage() || !substrate().holds_data()) {
    return nullptr;
  }
  return buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
}

// The bytes of a buffer get another place. Their old memory stays until no launch runs; an address of it is invalid then.
void move(c10::StorageImpl* storage, Buffer& buffer) {
  at::DataPtr& held = storage->_mutable_data_ptr_no_checks();
  if (held.get_context() != &buffer || held.get() != buffer.memory.get() || storage->nbytes() == 0) {
    return;  // observed, or a part of something larger
  }
  Room room;
  at::DataPtr memory = with_margins(storage->nbytes(), room);
  std::memcpy(room.start, held.get(), room.nbytes);
  const at::DeleterFnPtr deleter = held.get_deleter();
  const c10::Device device = held.device();
  held = at::DataPtr(room.start, held.release_context(), deleter, device);
  if (c10::StorageImpl* alias = buffer.alias.load(std::memory_order_acquire)) {
    alias->set_data_ptr_noswap(at::DataPtr(room.start, alias->device()));
  }
  std::swap(buffer.memory, memory);
  buffer.room = room;
  std::lock_guard<std::mutex> guard(left_lock);
  left.push_back(std::move(memory));
}

}  // namespace

void begin() {
  begun.store(true, std::memory_order_relaxed);
}

at::DataPtr allocate(size_t nbytes, Room& room) {
  return begun.load(std::memory_order_relaxed) ? with_margins(nbytes, room) : c10::GetCPUAllocator()->allocate(nbytes);
}

void begin_launch() {
  running.fetch_add(1);
}

void end_launch() {
  if (running.fetch_sub(1) != 1) {
    return;
  }
  std::vector<at::DataPtr> unused;
  std::lock_guard<std::mutex> guard(left_lock);
  if (running.load() == 0) {  // else one has begun that may move a buffer, or have read where one lay
    unused.swap(left);
  }
}

void guard(const at::Tensor& tensor) {
  Buffer* buffer = buffer_behind(tensor);
  if (buffer == nullptr) {
    return;
  }
  Room& room = buffer->room;
  if (C10_UNLIKELY(room.start == nullptr)) {
    move(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl(), *buffer);
  }
  if (C10_UNLIKELY(room.start != nullptr && !room.marked)) {
    std::memset(room.start - kBefore, kMark, kBefore);
    std::memset(room.start + room.nbytes, kMark, room.behind);
    room.marked = true;
  }
}

std::optional<Stray> stray(const at::Tensor& tensor) {
  Buffer* buffer = buffer_behind(tensor);
  if (buffer == nullptr || !buffer->room.marked) {
    return std::nullopt;
  }
  Room& room = buffer->room;
  char *const before = room.start - kBefore, *const after = room.start + room.nbytes;
  if (C10_LIKELY(is_marked(before, kBefore) && is_marked(after, room.behind))) {
    return std::nullopt;
  }
  Stray found{0, 0, room.nbytes};
  const auto look = [&](char* from, size_t count) {
    for (size_t i = 0; i < count; ++i) {
      if (static_cast<unsigned char>(from[i]) == kMark) continue;
      if (found.count++ == 0) found.offset = from + i - room.start;
      from[i] = static_cast<char>(kMark);
    }
  };
  look(after, room.behind);
  look(before, kBefore);
  return found;
}

}  // namespace anymps::margins
