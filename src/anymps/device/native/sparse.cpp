// Sparse COO tensors on the host substrate: the parts are aliased, results are taken apart and put together again.
#include "call.h"

#include <ATen/SparseTensorImpl.h>

namespace anymps {
namespace {

at::Tensor part_to_host(const at::Tensor& part) {
  return part.unsafeGetTensorImpl()->is_mps() ? at::Tensor(alias(part.unsafeGetTensorImpl())) : part;
}

at::SparseTensorImpl* parts(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}

at::Tensor part_to_mps(const at::Tensor& part, const at::Tensor& known) {
  const auto storage = part.storage();
  if (known.defined()) {
    const at::Tensor host = part_to_host(known);
    if (host.storage().unsafeGetStorageImpl() == storage.unsafeGetStorageImpl()) {
      return view_on_mps(part, known.storage());
    }
  }
  if (storage.device_type() == c10::DeviceType::MPS) {
    return view_on_mps(part, storage);
  }
  check_allocatable(part.scalar_type());
  const at::Tensor own = storage.use_count() <= 2 ? part : part.clone();  // the part itself and `storage` above
  adopt_storage(own.storage().unsafeGetStorageImpl());
  return view_on_mps(own, own.storage());
}

void fill(at::SparseTensorImpl* target, const at::SparseTensorImpl* source, const at::Tensor& indices, const at::Tensor& values) {
  target->raw_resize_(source->sparse_dim(), source->dense_dim(), source->sizes());
  target->set_indices_and_values_unsafe(indices, values);
  target->set_coalesced(source->coalesced());
}

}  // namespace

at::Tensor sparse_to_host(const at::Tensor& tensor) {
  const auto* source = parts(tensor);
  at::Tensor host = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCPU), tensor.dtype());
  fill(parts(host), source, part_to_host(source->indices()), part_to_host(source->values()));
  return host;
}

at::Tensor sparse_to_mps(const at::Tensor& host) {
  const auto* source = parts(host);
  at::Tensor result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseMPS), host.dtype());
  fill(parts(result), source, part_to_mps(source->indices(), {}), part_to_mps(source->values(), {}));
  return result;
}

void sparse_take_over(const at::Tensor& original, const at::Tensor& host) {
  auto* target = parts(original);
  const auto* source = parts(host);
  const at::Tensor indices = part_to_mps(source->indices(), target->indices());
  const at::Tensor values = part_to_mps(source->values(), target->values());
  fill(target, source, indices, values);
}

}  // namespace anymps
