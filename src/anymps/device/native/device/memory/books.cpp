// The process's allocator books: configuration from the environment, heap-model errors as torch errors, and an allocator of CPU memory
// before torch's own, which asks the books first.
#include "device/memory/books.h"

#include "device/errors/refusals.h"
#include "locks/locks.h"
#include "recorder/recorder.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <string>
#include <unordered_set>

namespace anymps {
namespace {

Mutex configure_mutex;
std::atomic<bool> configured{false};

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
  } catch (const RefusedRequest& error) {
    refuse(Refusal::Memory, allocation_rule(), ErrorClass::Runtime, error.what());
  }
}

void Books::release(Block* block) noexcept {
  model_.release(block);
}

}  // namespace anymps

namespace anymps::host_results {
namespace {

constexpr size_t kLarge = size_t(64) << 20;

// Whether the large memory that a CPU kernel of this operator asks for is its result's: it needs no other, or none that is
// larger than an argument.
bool makes_its_result_alone(const Rule& rule) {
  static const std::unordered_set<std::string> others{
      "arange", "linspace", "logspace", "range", "eye", "tril_indices", "triu_indices", "cat", "stack", "repeat", "tile",
      "mm", "bmm", "addmm", "baddbmm", "outer", "ger", "kron", "gather", "index_select", "index", "embedding", "take",
      "constant_pad_nd", "_cdist_forward", "im2col", "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d",
      "upsample_bilinear2d"};
  static const std::unordered_set<std::string> of_truth_values{  // beside which arguments of another dtype are cast
      "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "logical_not"};
  const std::string name = base_name(rule.op.operator_name().name);
  if (rule.op.hasTag(at::Tag::pointwise)) {
    return rule.writes == 0 && of_truth_values.count(name) == 0;
  }
  return others.count(name) != 0;
}

void check_room(size_t nbytes) {
  if (made_by == nullptr || !makes_its_result_alone(*made_by)) {
    return;
  }
  const HeapModel& model = books().model();
  const uint64_t limit = model.high_limit();
  if (nbytes >= books().max_buffer() || (limit != UINT64_MAX && model.current() + nbytes > limit)) {
    books().release(books().allocate(nbytes));  // raises
  }
}

struct Watched final : c10::Allocator {
  explicit Watched(c10::Allocator* torchs) : torchs(torchs) {}

  at::DataPtr allocate(size_t nbytes) override {
    if (C10_UNLIKELY(nbytes >= kLarge)) {
      check_room(nbytes);
    }
    return torchs->allocate(nbytes);
  }
  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return torchs->is_simple_data_ptr(data);
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return torchs->raw_deleter();
  }
  void copy_data(void* destination, const void* source, std::size_t count) const override {
    torchs->copy_data(destination, source, count);
  }

  c10::Allocator* const torchs;
};

}  // namespace

void watch() {
  static auto* const allocator = new Watched(c10::GetCPUAllocator());  // torch keeps the pointer
  c10::SetCPUAllocator(allocator);
}

}  // namespace anymps::host_results
