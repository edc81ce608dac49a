// Sparse COO tensors: the parts are aliased, results are taken apart and put together again.
#include "device/calls/call.h"

#include <ATen/SparseTensorImpl.h>

namespace anymps {
namespace {

at::SparseTensorImpl* parts(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor part_to_mps(const at::Tensor& part, const StorageLookup& storage_behind) {
  const auto storage = part.storage();
  if (storage.device_type() == c10::DeviceType::MPS) {
    return view_on_mps(part, storage);
  }
  if (storage_behind) {
    const c10::Storage behind = storage_behind(storage.unsafeGetStorageImpl());
    if (behind && behind.device_type() == c10::DeviceType::MPS) {
      return view_on_mps(part, behind);
    }
  }
  check_allocatable(part.scalar_type());
  // Held by the part and by `storage` above only, and not bytes that belong to somebody else.
  const bool fresh = storage.use_count() <= 2 && (storage.nbytes() == 0 || storage.data_ptr().get_context() != nullptr);
  const at::Tensor own = fresh ? part : part.clone();
  adopt_storage(own.storage().unsafeGetStorageImpl());
  return view_on_mps(own, own.storage());
}

// That of a tensor whose parts are aliases.
c10::DispatchKeySet alias_key() {
  return c10::DispatchKeySet(
      substrate().alias_device().is_cuda() ? c10::DispatchKey::SparseCUDA : c10::DispatchKey::SparseCPU);
}

void fill(at::SparseTensorImpl* target, const at::SparseTensorImpl* source, const at::Tensor& indices, const at::Tensor& values) {
  target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
  target->set_indices_and_values_unsafe(indices, values);
  target->set_coalesced(source->coalesced());
}

}  // namespace

at::Tensor sparse_to_host(const at::Tensor& tensor) {
  const auto* source = parts(tensor);
  at::Tensor host = at::detail::make_tensor<at::SparseTensorImpl>(alias_key(), tensor.dtype());
  fill(parts(host), source, alias_if_mps(source->indices()), alias_if_mps(source->values()));
  return host;
}

at::Tensor sparse_to_mps(const at::Tensor& host, const StorageLookup& storage_behind) {
  const auto* source = parts(host);
  at::Tensor result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseMPS), host.dtype());
  fill(parts(result), source, part_to_mps(source->indices(), storage_behind), part_to_mps(source->values(), storage_behind));
  return result;
}

void sparse_take_over(const at::Tensor& original, const at::Tensor& host) {
  auto* target = parts(original);
  const auto* source = parts(host);
  const StorageLookup own = [&](const c10::StorageImpl* storage) { return sparse_storage_behind(original, storage); };
  const at::Tensor indices = part_to_mps(source->indices(), own);
  const at::Tensor values = part_to_mps(source->values(), own);
  fill(target, source, indices, values);
}

c10::Storage sparse_storage_behind(const at::Tensor& original, const c10::StorageImpl* host) {
  if (host->data() != nullptr && original.unsafeGetTensorImpl()->is_mps()) {
    for (const at::Tensor& part : {parts(original)->indices(), parts(original)->values()}) {
      if (part.storage().data() == host->data()) {
        return part.storage();
      }
    }
  }
  return c10::Storage();
}

}  // namespace anymps
