// Owners that note the end of what they own.
#include "recorder/buffers/buffers.h"

#include "locks/locks.h"
#include "recorder/buffers/ledger.h"
#include "recorder/program/progress.h"

#include <ATen/SparseTensorImpl.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <c10/core/impl/COW.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace anymps::buffers {
namespace {

constexpr int64_t kMostSlack = 64 << 20;  // bytes that the allocator may add to one buffer; a larger difference is not this buffer's

struct Owner {
  at::DataPtr memory;
  uint64_t charged;
  uint32_t row;
};

Mutex mutex;
uint64_t sampled = 0;             // what was allocated at the last look
std::atomic<uint64_t> freed{0};   // of what was seen, since then
std::atomic<uint64_t> highest{0};

void let_go(void* context) {
  auto* owner = static_cast<Owner*>(context);
  freed.fetch_add(owner->charged, std::memory_order_relaxed);
  ledger::died(owner->row);
  delete owner;
}

// Of a buffer of its own: `heapBufferSizeAndAlign` gives multiples of 256 bytes (pytorch issue 193838).
uint64_t aligned(uint64_t size) {
  return (size + 255) / 256 * 256;
}

bool is_seen(const at::DataPtr& data) {
  return data.get_deleter() == &let_go;
}

std::atomic<at::DeleterFnPtr> let_go_elsewhere{nullptr};  // of another copy of this library

void take(c10::StorageImpl* storage, uint64_t charged, uint32_t row) {
  at::DataPtr data = std::move(storage->_mutable_data_ptr_no_checks());
  void* bytes = data.get();
  const c10::Device device = data.device();
  storage->set_data_ptr_noswap(at::DataPtr(bytes, new Owner{std::move(data), charged, row}, &let_go, device));
}

void add_new(const at::Tensor& tensor, c10::SmallVectorImpl<c10::StorageImpl*>& found) {
  if (!tensor.defined() || !tensor.device().is_mps()) {
    return;
  }
  if (tensor.is_sparse()) {
    const auto* parts = static_cast<const at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());  // no call of its own
    add_new(parts->indices(), found);
    add_new(parts->values(), found);
    return;
  }
  if (!tensor.unsafeGetTensorImpl()->has_storage()) {
    return;
  }
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const at::DataPtr& data = storage->data_ptr();
  // Memory that several share until one of them writes is told apart by its owner.
  if (storage->nbytes() == 0 || is_seen(data) || c10::impl::cow::is_cow_data_ptr(data)) {
    return;
  }
  if (std::find(found.begin(), found.end(), storage) == found.end()) {
    found.push_back(storage);
  }
}

}  // namespace

void start() {
  std::lock_guard<std::mutex> lock(mutex);
  sampled = allocated();
  freed.store(0);
  highest.store(sampled);
}

void see(c10::ArrayRef<at::Tensor> tensors) {
  c10::SmallVector<c10::StorageImpl*, 4> made;
  for (const at::Tensor& tensor : tensors) {
    add_new(tensor, made);
  }
  if (made.empty() || !ledger::is_kept()) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex);
  const uint64_t now = allocated(), reserved = at::detail::getMPSHooks().getDriverAllocatedMemory();
  int64_t slack = static_cast<int64_t>(now) - static_cast<int64_t>(sampled) + static_cast<int64_t>(freed.exchange(0));
  c10::StorageImpl* largest = made.front();
  for (c10::StorageImpl* storage : made) {
    slack -= static_cast<int64_t>(aligned(storage->nbytes()));
    largest = storage->nbytes() > largest->nbytes() ? storage : largest;
  }
  if (slack < 0 || slack >= kMostSlack) {
    slack = 0;  // something else came or went unseen
  }
  sampled = now;
  highest.store(std::max(highest.load(), now));
  for (c10::StorageImpl* storage : made) {
    const uint64_t charged = aligned(storage->nbytes()) + static_cast<uint64_t>(storage == largest ? slack : 0);
    take(storage, charged, ledger::born({charged, storage->nbytes()}, now, reserved));
  }
}

void assign(c10::StorageImpl* storage, uint8_t role, uint32_t module) {
  const at::DataPtr& data = storage->data_ptr();
  if (storage->device_type() != c10::DeviceType::MPS || storage->nbytes() == 0 || c10::impl::cow::is_cow_data_ptr(data)) {
    return;
  }
  const uint64_t charged = aligned(storage->nbytes());
  const auto meaning = static_cast<Role>(role);
  if (is_seen(data)) {
    auto* owner = static_cast<Owner*>(data.get_context());
    owner->row = ledger::assign(owner->row, {owner->charged, storage->nbytes()}, meaning, module);
  } else if (const uint32_t row = ledger::assign(0, {charged, storage->nbytes()}, meaning, module)) {
    take(storage, charged, row);
  }
}

const at::DataPtr& owner(const at::DataPtr& data) noexcept {
  const bool elsewhere = data.get_deleter() != nullptr && data.get_deleter() == let_go_elsewhere.load(std::memory_order_relaxed);
  return is_seen(data) || elsewhere ? static_cast<const Owner*>(data.get_context())->memory : data;
}

at::DeleterFnPtr deleter() {
  return &let_go;
}

void recognise(at::DeleterFnPtr elsewhere) {
  let_go_elsewhere.store(elsewhere);
}

uint64_t allocated() {
  const auto& hooks = at::detail::getMPSHooks();
  return hooks.hasMPS() ? hooks.getCurrentAllocatedMemory() : 0;
}

uint64_t peak() {
  return highest.load();
}

void reset_peak() {
  highest.store(allocated());
}

}  // namespace anymps::buffers
