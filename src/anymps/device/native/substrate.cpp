// The `host` substrate: allocation, aliases for CPU kernels, and adoption of their results.
#include "substrate.h"

#include "books.h"
#include "registry.h"
#include "texts.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/version.h>

namespace anymps {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

DispatchKeySet plain_mps_keys;
DispatchKeySet plain_host_keys;

// Reaches the protected fields of TensorImpl: an alias takes over a tensor's geometry as it is, because recomputing the
// contiguity flags would cost more than the rest of the call.
struct Geometry : c10::TensorImpl {
  using c10::TensorImpl::TensorImpl;

  static Geometry* of(c10::TensorImpl* impl) {
    return static_cast<Geometry*>(impl);
  }
  static const Geometry* of(const c10::TensorImpl* impl) {
    return static_cast<const Geometry*>(impl);
  }

  void copy_from(const Geometry& source) {
    sizes_and_strides_ = source.sizes_and_strides_;
    storage_offset_ = source.storage_offset_;
    numel_ = source.numel_;
    is_contiguous_ = source.is_contiguous_;
    is_channels_last_ = source.is_channels_last_;
    is_channels_last_contiguous_ = source.is_channels_last_contiguous_;
    is_channels_last_3d_ = source.is_channels_last_3d_;
    is_channels_last_3d_contiguous_ = source.is_channels_last_3d_contiguous_;
    is_non_overlapping_and_dense_ = source.is_non_overlapping_and_dense_;
    is_wrapped_number_ = source.is_wrapped_number_;
  }

  bool same_geometry(const Geometry& other) const {
    return storage_offset_ == other.storage_offset_ && sizes_and_strides_.sizes_arrayref() == other.sizes_and_strides_.sizes_arrayref() &&
        sizes_and_strides_.strides_arrayref() == other.sizes_and_strides_.strides_arrayref();
  }

  void move_to_mps(DispatchKeySet keys) {
    key_set_ = keys;
    device_opt_ = kMpsDevice;
  }

  void share_version(const c10::VariableVersion& version) {
    version_counter_ = version;
  }
};

// Aliases need some version counter, as kernels may bump it; nobody reads it, so that all of a thread share one.
const c10::VariableVersion& scratch_version() {
  thread_local const c10::VariableVersion version(0);
  return version;
}

void delete_buffer(void* context) {
  delete static_cast<Buffer*>(context);
}

at::DataPtr wrap(at::DataPtr&& bytes, size_t nbytes) {
  void* data = bytes.get();
  if (data == nullptr || nbytes == 0) {
    return at::DataPtr(nullptr, kMpsDevice);
  }
  Block* block = books().allocate(nbytes);
  auto* buffer = new Buffer(std::move(bytes), block);
  return at::DataPtr(data, buffer, &delete_buffer, kMpsDevice);
}

// torch.accelerator's memory functions work on mps from torch 2.13 on (pytorch pull 186748).
#if TORCH_VERSION_MINOR >= 13
using AllocatorBase = c10::DeviceAllocator;
#else
using AllocatorBase = at::Allocator;
#endif

struct MpsAllocator final : AllocatorBase {
  at::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    Block* block = books().allocate(nbytes);  // may raise: the Mac's limits are asked before the host's memory is taken
    at::DataPtr bytes;
    try {
      bytes = c10::GetCPUAllocator()->allocate(nbytes);
    } catch (...) {
      books().release(block);
      throw;
    }
    void* data = bytes.get();
    return at::DataPtr(data, new Buffer(std::move(bytes), block), &delete_buffer, kMpsDevice);
  }

  at::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // the context is a Buffer, never the pointer itself
  }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }

#if TORCH_VERSION_MINOR >= 13
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    books().model().empty_cache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  // 2.13 fills the two byte counters and nothing else; active bytes came with 2.15 (pytorch issue 193838).
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    fill(stats.allocated_bytes[all], books().model().allocated());
    fill(stats.reserved_bytes[all], books().model().reserved());
#if TORCH_VERSION_MINOR >= 15
    fill(stats.active_bytes[all], books().model().allocated());
#endif
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {
    books().model().reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex) override {
    books().model().reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex) override {
    const uint64_t recommended = books().recommended_max();
    const uint64_t driver = books().model().driver();
    return {driver < recommended ? recommended - driver : 0, recommended};
  }

 private:
  static void fill(c10::CachingAllocator::Stat& stat, const Statistic& from) {
    stat.current = static_cast<int64_t>(from.current);
    stat.peak = static_cast<int64_t>(from.peak);
    stat.allocated = static_cast<int64_t>(from.allocated);
    stat.freed = static_cast<int64_t>(from.freed);
  }
#endif
};

MpsAllocator the_allocator;

c10::intrusive_ptr<c10::StorageImpl> new_host_storage(void* data, size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      at::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

c10::Storage host_storage(const c10::StorageImpl* storage) {
  Buffer* buffer = buffer_of(storage->data_ptr());
  if (buffer == nullptr) {  // empty, or a piece of another storage (`storage[2:4]`)
    return c10::Storage(new_host_storage(const_cast<void*>(storage->data()), storage->nbytes()));
  }
  c10::StorageImpl* known = buffer->alias.load(std::memory_order_acquire);
  if (known == nullptr) {
    auto made = new_host_storage(buffer->memory.get(), storage->nbytes());
    c10::StorageImpl* mine = made.get();
    if (buffer->alias.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) {
      c10::raw::intrusive_ptr::incref(mine);
      known = mine;
    }
  }
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(known));
}

}  // namespace

Buffer::~Buffer() {
  if (c10::StorageImpl* storage = alias.load(std::memory_order_acquire)) {
    c10::raw::intrusive_ptr::decref(storage);
  }
  books().release(block);
}

void initialize_substrate() {
  c10::SetAllocator(c10::DeviceType::MPS, &the_allocator, /*priority=*/100);
  const at::Tensor host = at::Tensor(at::detail::empty_generic(
      {0}, c10::GetCPUAllocator(), DispatchKeySet(DispatchKey::CPU), c10::ScalarType::Float, std::nullopt));
  const at::Tensor mps = at::Tensor(at::detail::empty_generic(
      {0}, &the_allocator, DispatchKeySet(DispatchKey::MPS), c10::ScalarType::Float, std::nullopt));
  plain_host_keys = host.key_set();
  plain_mps_keys = mps.key_set();
}

at::Allocator* mps_allocator() {
  return &the_allocator;
}

Buffer* buffer_of(const at::DataPtr& data) noexcept {
  return data.get_deleter() == &delete_buffer ? static_cast<Buffer*>(data.get_context()) : nullptr;
}

DispatchKeySet host_keys(DispatchKeySet keys) {
  if (C10_LIKELY(keys == plain_mps_keys)) {
    return plain_host_keys;
  }
  const auto autocast = DispatchKeySet(DispatchKey::AutocastMPS);
  return (keys.remove_backend(c10::BackendComponent::MPSBit) - autocast) | DispatchKeySet(c10::BackendComponent::CPUBit) |
      DispatchKeySet(DispatchKey::AutocastCPU);
}

DispatchKeySet mps_keys(DispatchKeySet keys) {
  if (C10_LIKELY(keys == plain_host_keys)) {
    return plain_mps_keys;
  }
  const auto autocast = DispatchKeySet(DispatchKey::AutocastCPU);
  return (keys.remove_backend(c10::BackendComponent::CPUBit) - autocast) | DispatchKeySet(c10::BackendComponent::MPSBit) |
      DispatchKeySet(DispatchKey::AutocastMPS);
}

void check_allocatable(c10::ScalarType dtype) {
  if (C10_UNLIKELY(dtype == c10::ScalarType::Double || (dtype == c10::ScalarType::ComplexDouble && texts().complex128_refused))) {
    refuse(
        dtype == c10::ScalarType::Double ? Refusal::Float64 : Refusal::Complex128,
        allocation_rule(),
        ErrorClass::Type,
        texts().float64);
  }
}

void adopt_storage(c10::StorageImpl* storage) {
  if (storage->device_type() == c10::DeviceType::MPS) {
    return;
  }
  at::DataPtr bytes = std::move(storage->_mutable_data_ptr_no_checks());
  storage->set_data_ptr_noswap(wrap(std::move(bytes), storage->nbytes()));
  storage->set_allocator(&the_allocator);
}

void adopt(c10::TensorImpl* fresh) {
  check_allocatable(c10::typeMetaToScalarType(fresh->dtype()));
  adopt_storage(fresh->unsafe_storage().unsafeGetStorageImpl());
  Geometry::of(fresh)->move_to_mps(mps_keys(fresh->key_set()));
}

c10::intrusive_ptr<c10::TensorImpl> alias(const c10::TensorImpl* tensor) {
  auto made = c10::make_intrusive<Geometry>(
      c10::TensorImpl::VIEW,
      host_storage(tensor->unsafe_storage().unsafeGetStorageImpl()),
      host_keys(tensor->key_set()),
      tensor->dtype());
  made->copy_from(*Geometry::of(tensor));
  made->share_version(scratch_version());
  return made;
}

at::Tensor view_on_mps(const at::Tensor& view, const c10::Storage& base_storage) {
  const c10::TensorImpl* source = view.unsafeGetTensorImpl();
  auto made = c10::make_intrusive<c10::TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(base_storage), mps_keys(source->key_set()), source->dtype());
  Geometry::of(made.get())->copy_from(*Geometry::of(source));
  if (!made->is_inference()) {
    made->set_version_counter(c10::VariableVersion(0));
  }
  return at::Tensor(std::move(made));
}

void take_over(const at::Tensor& original, c10::TensorImpl* alias) {
  c10::TensorImpl* impl = original.unsafeGetTensorImpl();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* host = alias->unsafe_storage().unsafeGetStorageImpl();
  if (C10_UNLIKELY(host->data_ptr().get() != storage->data_ptr().get() || host->nbytes() != storage->nbytes())) {
    const size_t nbytes = host->nbytes();
    at::DataPtr bytes = std::move(host->_mutable_data_ptr_no_checks());
    host->set_data_ptr_noswap(at::DataPtr(bytes.get(), c10::Device(c10::DeviceType::CPU)));
    at::DataPtr wrapped;
    try {
      wrapped = wrap(std::move(bytes), nbytes);
    } catch (...) {  // no room on the Mac: both stay as they were
      host->set_data_ptr_noswap(at::DataPtr(storage->data_ptr().get(), c10::Device(c10::DeviceType::CPU)));
      host->set_nbytes(storage->nbytes());
      Geometry::of(alias)->copy_from(*Geometry::of(impl));
      throw;
    }
    storage->set_data_ptr_noswap(std::move(wrapped));
    storage->set_nbytes(nbytes);
  }
  if (C10_UNLIKELY(!Geometry::of(impl)->same_geometry(*Geometry::of(alias)))) {
    Geometry::of(impl)->copy_from(*Geometry::of(alias));
  }
}

}  // namespace anymps
