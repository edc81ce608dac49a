// An allocator of CPU memory before torch's own, which asks the Mac's books first.
#include "device/memory/host_results.h"

#include "device/memory/books.h"

#include <ATen/core/enum_tag.h>
#include <c10/core/CPUAllocator.h>

#include <string>
#include <unordered_set>

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
  const std::string& full = rule.op.operator_name().name;
  const std::string name = full.substr(full.find("::") + 2);
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
