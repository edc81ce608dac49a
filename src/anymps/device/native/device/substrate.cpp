// The substrates: allocation, aliases for kernels, and adoption of their results.
#include "device/substrate.h"

#include "device/books.h"
#include "device/fork.h"
#include "device/refusals.h"
#include "device/waits.h"
#include "law/law.h"
#include "recorder/recorder.h"

#include <ATen/EmptyTensor.h>
#include <anymps/release.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <cstring>

namespace anymps {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

DispatchKeySet plain_mps_keys;
DispatchKeySet plain_host_keys;

// On the `shape` substrate a buffer keeps the bytes of known values up to this size: room for a batch of token ids and its
// masks, while a model of billions of parameters stays far below what a laptop has.
size_t known_bytes = size_t(1) << 20;

// Addresses of the `shape` substrate: distinct, aligned, and never mapped, so that a wild read stops the process.
constexpr uintptr_t kShapeBase = uintptr_t(1) << 60;

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

  // Becomes the alias of another tensor over the same storage.
  void stand_for(const Geometry& tensor, bool meta) {
    key_set_ = host_keys(tensor.key_set_, meta);
    data_type_ = tensor.data_type_;
    copy_from(tensor);
  }

  bool is_bare() const {
    return autograd_meta() == nullptr && extra_meta_ == nullptr && pyobj_slot_.load_pyobj() == nullptr;
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

at::DataPtr shape_buffer(at::DataPtr&& bytes, size_t nbytes, Values values) {
  Block* block = books().allocate(nbytes);
  auto* buffer = new Buffer(std::move(bytes), block);
  buffer->values.store(values, std::memory_order_relaxed);
  return at::DataPtr(reinterpret_cast<void*>(kShapeBase + HeapModel::block_address(block)), buffer, &delete_buffer, kMpsDevice);
}

at::DataPtr wrap(at::DataPtr&& bytes, size_t nbytes) {
  if (C10_UNLIKELY(shapes_only && nbytes != 0)) {
    const bool known = bytes.get() != nullptr && nbytes <= known_bytes;
    return shape_buffer(known ? std::move(bytes) : at::DataPtr(), nbytes, known ? Values::Known : Values::Unknown);
  }
  void* data = bytes.get();
  if (data == nullptr || nbytes == 0) {
    return at::DataPtr(nullptr, kMpsDevice);
  }
  Block* block = books().allocate(nbytes);
  auto* buffer = new Buffer(std::move(bytes), block);
  return at::DataPtr(data, buffer, &delete_buffer, kMpsDevice);
}

template <class Base>
struct Allocation : Base {
  at::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    enter_device();
    if (C10_UNLIKELY(shapes_only)) {
      return shape_buffer(at::DataPtr(), nbytes, Values::Blank);
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
    this->default_copy_data(destination, source, count);
  }
};

// What torch.accelerator's memory functions ask.
struct AccountedAllocation final : Allocation<c10::DeviceAllocator> {
  bool initialized() override {
    return true;
  }
  void emptyCache(c10::MempoolId_t) override {
    empty_device_cache();
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  // 2.13 fills the two byte counters and nothing else.
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const auto all = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    fill(stats.allocated_bytes[all], books().model().allocated());
    fill(stats.reserved_bytes[all], books().model().reserved());
    if constexpr (release::accelerator_active_bytes) {
      fill(stats.active_bytes[all], books().model().allocated());
    }
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
};

std::conditional_t<release::accelerator_memory_api, AccountedAllocation, Allocation<at::Allocator>> the_allocator;

c10::intrusive_ptr<c10::StorageImpl> new_host_storage(void* data, size_t nbytes) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      at::DataPtr(data, c10::Device(c10::DeviceType::CPU)),
      c10::GetCPUAllocator(),
      /*resizable=*/true);
}

c10::intrusive_ptr<c10::StorageImpl> new_meta_storage(size_t nbytes) {
  const c10::Device meta(c10::DeviceType::Meta);
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      at::DataPtr(nullptr, meta),
      c10::GetAllocator(c10::DeviceType::Meta),
      /*resizable=*/true);
}

c10::Storage alias_storage(const c10::StorageImpl* storage) {
  Buffer* buffer = buffer_of(storage->data_ptr());
  if (buffer == nullptr && shapes_only) {
    return c10::Storage(new_meta_storage(storage->nbytes()));
  }
  if (buffer == nullptr) {  // empty, or a piece of another storage (`storage[2:4]`)
    return c10::Storage(new_host_storage(const_cast<void*>(storage->data()), storage->nbytes()));
  }
  c10::StorageImpl* known = buffer->alias.load(std::memory_order_acquire);
  if (known == nullptr) {
    auto made = shapes_only ? new_meta_storage(storage->nbytes()) : new_host_storage(buffer->memory.get(), storage->nbytes());
    c10::StorageImpl* mine = made.get();
    if (buffer->alias.compare_exchange_strong(known, mine, std::memory_order_acq_rel)) {
      c10::raw::intrusive_ptr::incref(mine);
      known = mine;
    }
  }
  return c10::Storage(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(known));
}

c10::intrusive_ptr<Geometry> alias_over(const c10::TensorImpl* tensor, c10::Storage&& storage, bool meta) {
  auto made = c10::make_intrusive<Geometry>(
      c10::TensorImpl::VIEW, std::move(storage), host_keys(tensor->key_set(), meta), tensor->dtype());
  made->copy_from(*Geometry::of(tensor));
  made->share_version(scratch_version());
  return made;
}

Buffer* buffer_behind(const at::Tensor& tensor) {
  return buffer_of(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr());
}

ledger::Size size_of(const Block* block) {
  return {HeapModel::block_size(block), HeapModel::block_nbytes(block)};
}

uint32_t row_of_birth(const Block* block) {
  if (C10_LIKELY(!ledger::is_kept()) || block == nullptr) {
    return 0;
  }
  return ledger::born(size_of(block), books().model().current(), books().model().total());
}

}  // namespace

bool shapes_only = false;

void choose_substrate(Substrate substrate) {
  shapes_only = substrate == Substrate::Shape;
}

void keep_values_up_to(size_t bytes) {
  known_bytes = bytes;
}

Buffer::Buffer(at::DataPtr&& bytes, Block* its_block)
    : memory(std::move(bytes)), block(its_block), row(row_of_birth(its_block)) {}

Buffer::~Buffer() {
  ledger::died(row);
  if (c10::TensorImpl* kept = spare.load(std::memory_order_acquire)) {
    c10::raw::intrusive_ptr::decref(kept);
  }
  if (c10::StorageImpl* storage = alias.load(std::memory_order_acquire)) {
    c10::raw::intrusive_ptr::decref(storage);
  }
  books().release(block);
}

void Buffer::assign(uint8_t role, uint32_t module) {
  if (block != nullptr) {
    row = ledger::assign(row, size_of(block), static_cast<Role>(role), module);
  }
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

DispatchKeySet host_keys(DispatchKeySet keys, bool meta) {
  if (C10_LIKELY(keys == plain_mps_keys && !meta)) {
    return plain_host_keys;
  }
  const auto autocast = DispatchKeySet(DispatchKey::AutocastMPS);
  if (meta) {
    return (keys.remove_backend(c10::BackendComponent::MPSBit) - autocast) | DispatchKeySet(c10::BackendComponent::MetaBit);
  }
  return (keys.remove_backend(c10::BackendComponent::MPSBit) - autocast) | DispatchKeySet(c10::BackendComponent::CPUBit) |
      DispatchKeySet(DispatchKey::AutocastCPU);
}

DispatchKeySet mps_keys(DispatchKeySet keys) {
  if (C10_LIKELY(keys == plain_host_keys)) {
    return plain_mps_keys;
  }
  const auto autocast = DispatchKeySet(DispatchKey::AutocastCPU);
  if (keys.has_backend(c10::BackendComponent::MetaBit)) {
    keys = keys.remove_backend(c10::BackendComponent::MetaBit);
  }
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

void check_rank(size_t dimensions) {
  constexpr size_t most = 16;  // torch 2.7 to 2.15, aten/src/ATen/mps/EmptyTensor.cpp
  if (C10_UNLIKELY(dimensions > most)) {
    refuse(
        Refusal::Rank,
        allocation_rule(),
        ErrorClass::Runtime,
        "MPS supports tensors with dimensions <= 16, but got " + std::to_string(dimensions) + ".");
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
  if (Buffer* buffer = buffer_of(tensor->unsafe_storage().unsafeGetStorageImpl()->data_ptr())) {
    if (c10::TensorImpl* kept = buffer->spare.exchange(nullptr, std::memory_order_acq_rel)) {
      Geometry::of(kept)->stand_for(*Geometry::of(tensor), shapes_only);
      return c10::intrusive_ptr<c10::TensorImpl>::reclaim(kept);
    }
  }
  return alias_over(tensor, alias_storage(tensor->unsafe_storage().unsafeGetStorageImpl()), shapes_only);
}

void give_back(const c10::TensorImpl* tensor, c10::intrusive_ptr<c10::TensorImpl>&& alias) noexcept {
  const c10::StorageImpl* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  Buffer* buffer = storage == nullptr ? nullptr : buffer_of(storage->data_ptr());  // a sparse tensor has none
  const bool ours = buffer != nullptr && alias->unsafe_storage().unsafeGetStorageImpl() == buffer->alias.load(std::memory_order_acquire);
  if (!ours || alias.use_count() != 1 || alias.weak_use_count() != 1 || !Geometry::of(alias.get())->is_bare()) {
    return;
  }
  c10::TensorImpl* none = nullptr;
  if (buffer->spare.compare_exchange_strong(none, alias.get(), std::memory_order_acq_rel)) {
    alias.release();
  }
}

c10::intrusive_ptr<c10::TensorImpl> bytes_alias(const c10::TensorImpl* tensor) {
  if (!shapes_only) {
    return alias(tensor);
  }
  const c10::StorageImpl* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  Buffer* buffer = buffer_of(storage->data_ptr());
  return alias_over(
      tensor, c10::Storage(new_host_storage(buffer == nullptr ? nullptr : buffer->memory.get(), storage->nbytes())), false);
}

bool has_values(const at::Tensor& tensor) {
  if (!tensor.is_mps()) {
    return !tensor.is_meta();
  }
  if (!shapes_only || tensor.numel() == 0) {
    return true;
  }
  if (tensor.is_sparse()) {
    return false;
  }
  const Buffer* buffer = buffer_behind(tensor);
  return buffer != nullptr && (buffer->values.load() == Values::Known || (buffer->values.load() == Values::Blank && take_values(tensor, false)));
}

bool take_values(const at::Tensor& tensor, bool covers) {
  Buffer* buffer = buffer_behind(tensor);
  const size_t nbytes = tensor.storage().nbytes();
  if (buffer == nullptr || nbytes > known_bytes) {
    return false;
  }
  const Values values = buffer->values.load();
  if (values == Values::Unknown && !(covers && tensor.is_non_overlapping_and_dense() && tensor.nbytes() == nbytes)) {
    return false;
  }
  if (buffer->memory.get() == nullptr) {
    buffer->memory = c10::GetCPUAllocator()->allocate(nbytes);
    std::memset(buffer->memory.get(), 0, nbytes);
  }
  buffer->values.store(Values::Known);
  return true;
}

void forget_values(const at::Tensor& tensor) {
  if (Buffer* buffer = buffer_behind(tensor)) {
    buffer->values.store(Values::Unknown);
    buffer->memory.clear();
  }
}

DispatchKeySet compute_key() {
  return DispatchKeySet(shapes_only ? DispatchKey::Meta : DispatchKey::CPU);
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

void take_over(c10::TensorImpl* original, c10::TensorImpl* alias) {
  c10::StorageImpl* storage = original->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* host = alias->unsafe_storage().unsafeGetStorageImpl();
  const bool moved = !shapes_only && host->data_ptr().get() != storage->data_ptr().get();  // shapes have no address
  if (C10_UNLIKELY(moved || host->nbytes() != storage->nbytes())) {
    const size_t nbytes = host->nbytes();
    at::DataPtr bytes = std::move(host->_mutable_data_ptr_no_checks());
    host->set_data_ptr_noswap(at::DataPtr(bytes.get(), host->device()));
    at::DataPtr wrapped;
    try {
      wrapped = wrap(std::move(bytes), nbytes);
    } catch (...) {  // no room on the Mac: both stay as they were
      host->set_data_ptr_noswap(at::DataPtr(shapes_only ? nullptr : storage->data_ptr().get(), host->device()));
      host->set_nbytes(storage->nbytes());
      Geometry::of(alias)->copy_from(*Geometry::of(original));
      throw;
    }
    storage->set_data_ptr_noswap(std::move(wrapped));
    storage->set_nbytes(nbytes);
  }
  if (C10_UNLIKELY(!Geometry::of(original)->same_geometry(*Geometry::of(alias)))) {
    Geometry::of(original)->copy_from(*Geometry::of(alias));
  }
}

}  // namespace anymps
