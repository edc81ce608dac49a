// The pool of streams and each thread's current one: numbers alone, since there is nothing to wait for.
#include "device/backend/streams.h"

#include "device/memory/memory.h"

#include <c10/util/Exception.h>

#include <atomic>

namespace anymps::streams {
namespace {

constexpr int64_t kPool = 32;  // torch 2.15, ATen/mps/MPSStream.h

thread_local int64_t current_id = 0;

c10::Stream stream(int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, kMpsDevice, id);
}

}  // namespace

c10::Stream current() {
  return stream(current_id);
}

void set_current(int64_t id) {
  current_id = by_id(id).id();
}

c10::Stream next() {
  static std::atomic<uint32_t> handed_out{0};
  return stream(1 + handed_out++ % kPool);
}

c10::Stream by_id(int64_t id) {
  TORCH_CHECK(id >= 0 && id <= kPool, "stream_id=", id, " not found");  // torch 2.15, MPSStream.mm
  return stream(id);
}

}  // namespace anymps::streams
