// The beginning and the end of a copy that returns early.
#include "recorder/copies/nonblocking.h"

#include "recorder/program/progress.h"

#include <ATen/ops/clone_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/logical_not_ops.h>

namespace anymps::nonblocking {
namespace {

std::atomic<bool> strict{false};

// A second tensor over the same storage, which resizing the first one does not touch.
at::Tensor second(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false));
}

// Not a number; of integers a value that no index and no length has; of truth values the wrong ones.
void spoil(at::Tensor& tensor) {
  const c10::ScalarType type = tensor.scalar_type();
  if (c10::isFloatingType(type) || c10::isComplexType(type)) {
    at::_ops::fill__Scalar::call(tensor, std::numeric_limits<double>::quiet_NaN());
  } else if (type == c10::ScalarType::Bool) {
    at::_ops::logical_not_::call(tensor);
  } else if (c10::isIntegralType(type, false)) {
    const int unused = 64 - static_cast<int>(tensor.itemsize()) * 8;
    const int64_t pattern = c10::isSignedType(type) ? static_cast<int64_t>(0xA5A5A5A5A5A5A5A5ull) : 0x5A5A5A5A5A5A5A5All;
    at::_ops::fill__Scalar::call(tensor, pattern >> unused);
  }
}

}  // namespace

void hold_back(bool value) {
  strict.store(value);
}

bool returns_early(const at::Tensor& destination, const at::Tensor& source) {
  if (!source.is_cpu() || destination.is_cpu()) {
    return true;
  }
  if (!destination.sizes().equals(source.sizes())) {
    return false;
  }
  for (int64_t i = 0; i < source.dim(); ++i) {
    if (source.size(i) > 1 && source.stride(i) != destination.stride(i)) {
      return false;
    }
  }
  return true;
}

void started_to_mps(const at::Tensor& source, bool casts) {
  if (casts || !recording() || !source.is_non_overlapping_and_dense()) {
    return;
  }
  Copy copy;
  copy.storage = host_storage(source);
  copy.source = second(source);
  copy.hash = hash_of(source);
  add_pending(std::move(copy));
  watch();
}

void started_to_cpu(at::Tensor& destination) {
  const bool held_back = strict.load();
  const c10::StorageImpl* storage = host_storage(destination);
  if (storage == nullptr || !(recording() || held_back)) {
    return;
  }
  Copy copy;
  copy.storage = storage;
  copy.destination.emplace(destination.storage().getWeakStorageImpl());
  if (held_back) {
    const Ours guard;
    copy.target = second(destination);
    copy.values = at::_ops::clone::call(copy.target, std::nullopt);
    spoil(copy.target);
  }
  add_pending(std::move(copy));
  watch();
}

uint64_t started() {
  return copies_so_far();
}

void settle(uint64_t up_to) {
  if (let_go(/*waits=*/true, [&](const Copy& copy) { return copy.number <= up_to; })) {
    watch();
  }
}

void recording_starts() {
  settle(std::numeric_limits<uint64_t>::max());
}

void recording_ends() {
  if (let_go(/*waits=*/false, [](const Copy& copy) { return !copy.values.defined(); })) {
    watch();
  }
}

}  // namespace anymps::nonblocking
