// Aliases for kernels, and the way back: adoption of what kernels have made, views, resized arguments.
#include "device/calls/alias.h"

#include "device/memory/memory.h"
#include "device/interface/substrate.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/CPUAllocator.h>

namespace anymps {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

const DispatchKeySet autocast_of_others{DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA};
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

  // Becomes the alias of another tensor, with its own storage over the other bytes.
  void stand_for(const Geometry& tensor, at::DataPtr&& bytes, DispatchKeySet keys) {
    c10::StorageImpl* own = storage_.unsafeGetStorageImpl();
    own->set_data_ptr_noswap(std::move(bytes));
    own->set_nbytes(tensor.storage_.unsafeGetStorageImpl()->nbytes());
    key_set_ = keys;
    data_type_ = tensor.data_type_;
    copy_from(tensor);
  }

  // Whether a kernel has left nothing on it, nor kept its storage.
  bool is_bare() const {
    return autograd_meta() == nullptr && extra_meta_ == nullptr && pyobj_slot_.load_pyobj() == nullptr && storage_.use_count() == 1;
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

c10::intrusive_ptr<c10::StorageImpl> new_storage(at::DataPtr&& data, size_t nbytes) {
  const c10::Device device = data.device();
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(),
      static_cast<int64_t>(nbytes),
      std::move(data),
      c10::GetAllocator(device.type()),
      /*resizable=*/true);
}

// The aliases that no call of this thread uses at the moment. They are few, so that they stay in the cache; what a buffer
// kept for itself would have to be fetched for each.
constexpr size_t kMostSpares = 16;
using Spares = c10::SmallVector<c10::intrusive_ptr<c10::TensorImpl>, kMostSpares>;
Spares& spares() {
  thread_local Spares of_thread;
  return of_thread;
}

c10::intrusive_ptr<Geometry> alias_over(const c10::TensorImpl* tensor, c10::Storage&& storage, DispatchKeySet keys) {
  auto made = c10::make_intrusive<Geometry>(c10::TensorImpl::VIEW, std::move(storage), keys, tensor->dtype());
  made->copy_from(*Geometry::of(tensor));
  made->share_version(scratch_version());
  return made;
}

DispatchKeySet without_backend(DispatchKeySet keys) {
  return DispatchKeySet(DispatchKeySet::RAW, keys.raw_repr() & ~c10::full_backend_mask);
}

}  // namespace

void learn_plain_keys() {
  const at::Tensor host = at::Tensor(at::detail::empty_generic(
      {0}, c10::GetCPUAllocator(), DispatchKeySet(DispatchKey::CPU), c10::ScalarType::Float, std::nullopt));
  const at::Tensor mps = at::Tensor(at::detail::empty_generic(
      {0}, mps_allocator(), DispatchKeySet(DispatchKey::MPS), c10::ScalarType::Float, std::nullopt));
  plain_host_keys = host.key_set();
  plain_mps_keys = mps.key_set();
}

DispatchKeySet host_keys(DispatchKeySet keys) {
  if (C10_LIKELY(keys == plain_mps_keys)) {
    return plain_host_keys;
  }
  return backend_keys(keys, c10::BackendComponent::CPUBit) | DispatchKeySet(DispatchKey::AutocastCPU);
}

DispatchKeySet backend_keys(DispatchKeySet keys, c10::BackendComponent backend) {
  return (without_backend(keys) - DispatchKeySet(DispatchKey::AutocastMPS)) | DispatchKeySet(backend);
}

DispatchKeySet mps_keys(DispatchKeySet keys) {
  if (C10_LIKELY(keys == plain_host_keys)) {
    return plain_mps_keys;
  }
  return (without_backend(keys) - autocast_of_others) | DispatchKeySet(c10::BackendComponent::MPSBit) |
      DispatchKeySet(DispatchKey::AutocastMPS);
}

void adopt_storage(c10::StorageImpl* storage) {
  if (storage->device_type() == c10::DeviceType::MPS) {
    return;
  }
  at::DataPtr bytes = std::move(storage->_mutable_data_ptr_no_checks());
  storage->set_data_ptr_noswap(substrate().adopt(std::move(bytes), storage->nbytes()));
  storage->set_allocator(mps_allocator());
}

void adopt(c10::TensorImpl* fresh) {
  check_allocatable(c10::typeMetaToScalarType(fresh->dtype()));
  adopt_storage(fresh->unsafe_storage().unsafeGetStorageImpl());
  Geometry::of(fresh)->move_to_mps(mps_keys(fresh->key_set()));
}

c10::intrusive_ptr<c10::TensorImpl> alias(const c10::TensorImpl* tensor, const c10::TensorImpl* beside) {
  const DispatchKeySet keys = substrate().alias_keys(tensor->key_set());
  if (C10_UNLIKELY(beside != nullptr)) {
    return alias_over(tensor, c10::Storage(beside->unsafe_storage()), keys);
  }
  const c10::StorageImpl* storage = tensor->unsafe_storage().unsafeGetStorageImpl();
  at::DataPtr bytes(substrate().alias_address(storage), substrate().alias_device());
  Spares& kept = spares();
  if (C10_UNLIKELY(kept.empty())) {
    return alias_over(tensor, c10::Storage(new_storage(std::move(bytes), storage->nbytes())), keys);
  }
  auto made = kept.pop_back_val();
  Geometry::of(made.get())->stand_for(*Geometry::of(tensor), std::move(bytes), keys);
  return made;
}

at::Tensor alias_if_mps(const at::Tensor& tensor) {
  return tensor.is_mps() ? at::Tensor(alias(tensor.unsafeGetTensorImpl())) : tensor;
}

std::pair<at::Tensor, at::Tensor> aliases_of_copy(const at::Tensor& destination, const at::Tensor& source) {
  const at::Tensor target = alias_if_mps(destination);
  if (C10_LIKELY(!source.is_mps() || !source.is_alias_of(destination))) {
    return {target, alias_if_mps(source)};
  }
  return {target, at::Tensor(alias(source.unsafeGetTensorImpl(), target.unsafeGetTensorImpl()))};
}

c10::intrusive_ptr<c10::TensorImpl> alias_over_bytes(const c10::TensorImpl* tensor, void* bytes) {
  auto storage = new_storage(at::DataPtr(bytes, c10::DeviceType::CPU), tensor->unsafe_storage().unsafeGetStorageImpl()->nbytes());
  return alias_over(tensor, c10::Storage(std::move(storage)), host_keys(tensor->key_set()));
}

void give_back(c10::intrusive_ptr<c10::TensorImpl> alias) noexcept {
  // Not a sparse tensor, nor a copy on the CPU that stood for a tensor of another substrate.
  const bool ours = alias->has_storage() && alias->device() == substrate().alias_device();
  if (!ours || alias.use_count() != 1 || alias.weak_use_count() != 1 || !Geometry::of(alias.get())->is_bare()) {
    return;
  }
  Spares& kept = spares();
  if (C10_LIKELY(kept.size() < kMostSpares)) {
    kept.push_back(std::move(alias));
  }
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
  if (C10_UNLIKELY(substrate().has_moved(host, storage) || host->nbytes() != storage->nbytes())) {
    const size_t nbytes = host->nbytes();
    at::DataPtr bytes = std::move(host->_mutable_data_ptr_no_checks());
    host->set_data_ptr_noswap(at::DataPtr(bytes.get(), host->device()));
    at::DataPtr wrapped;
    try {
      wrapped = substrate().adopt(std::move(bytes), nbytes);
    } catch (...) {  // no room on the Mac: both stay as they were
      host->set_data_ptr_noswap(at::DataPtr(substrate().alias_address(storage), host->device()));
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
