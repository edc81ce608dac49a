// The process's allocator books: configuration from the environment, and heap-model errors as torch errors.
#include "device/memory/books.h"

#include "device/errors/refusals.h"
#include "rules/rules.h"
#include "locks/locks.h"
#include "recorder/recorder.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

namespace anymps {
namespace {

Mutex configure_mutex;
std::atomic<bool> configured{false};

[[noreturn]] void raise(const std::exception& error) {
  refuse(Refusal::Memory, allocation_rule(), ErrorClass::Runtime, error.what());
}

double ratio_from_environment(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : parse_ratio(text);
}

}  // namespace

Books& books() {
  static Books* the_books = new Books;  // outlives every tensor, also those freed while the process ends
  return *the_books;
}

void Books::describe(int torch_minor, uint64_t recommended_max, uint64_t max_buffer) {
  config_.torch_minor = torch_minor;
  config_.generation = generation_of(torch_minor);
  config_.recommended_max = recommended_max;
  config_.max_buffer = max_buffer;
}

void Books::configure() {
  std::lock_guard<std::mutex> lock(configure_mutex);
  if (ready_) {
    return;
  }
  HeapConfig config = config_;
  config.high_ratio = ratio_from_environment("PYTORCH_MPS_HIGH_WATERMARK_RATIO", config.high_ratio);
  config.low_ratio = ratio_from_environment("PYTORCH_MPS_LOW_WATERMARK_RATIO", config.low_ratio);
  model_.configure(config);
  ready_ = true;
  configured.store(true, std::memory_order_release);
}

HeapModel& Books::model() {
  if (C10_UNLIKELY(!configured.load(std::memory_order_acquire))) {
    try {
      configure();
    } catch (const InvalidSetting& error) {
      TORCH_CHECK(false, error.what());
    }
  }
  return model_;
}

Block* Books::allocate(size_t nbytes) {
  HeapModel& model = this->model();
  const uint64_t drains = model.drains();
  try {
    Block* block = model.allocate(nbytes);
    if (C10_UNLIKELY(model.drains() != drains)) {
      if (told_by_device()) {
        const int64_t now = now_ns();
        tape::mark(mark_rule("anymps::allocator"), 0, now, now, Wait::EmptyCache);
      }
      nonblocking::waited();
    }
    return block;
  } catch (const OutOfMemory& error) {
    raise(error);
  } catch (const InvalidBufferSize& error) {
    raise(error);
  }
}

void Books::release(Block* block) noexcept {
  model_.release(block);
}

}  // namespace anymps
