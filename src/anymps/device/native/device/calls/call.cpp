// Aliasing of arguments and adoption of results, shared by the boxed and the unboxed kernels.
#include "device/calls/call.h"

#include "device/memory/waits.h"
#include "device/calls/one_thread.h"

#include <ATen/SparseTensorImpl.h>

#include <algorithm>
#include <array>

namespace anymps {

at::Tensor Call::to_alias(const at::Tensor& tensor, bool written, size_t position) {
  using Counted = c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  return C10_LIKELY(tensor.defined()) ? at::Tensor(Counted::reclaim_copy(alias_of(tensor, written, position))) : at::Tensor();
}

c10::TensorImpl* Call::alias_of(const at::Tensor& tensor, bool written, size_t position) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  look_at(tensor, position);
  const auto hold = [&](c10::intrusive_ptr<c10::TensorImpl>&& host, bool is_written) {
    arguments_.push_back({impl, std::move(host), is_written});
    return arguments_.back().host.get();
  };
  if (C10_UNLIKELY(!impl->is_mps())) {
    return hold((on_host_ ? tensor : substrate().alias_of_foreign(tensor)).getIntrusivePtr(), false);
  }
  if (C10_UNLIKELY(impl->is_sparse())) {
    substrate().check_sparse();
    return hold(sparse_to_host(tensor).getIntrusivePtr(), written);
  }
  // A tensor that stands here twice has one alias, and two over one storage have one storage, as kernels that look for overlaps
  // tell one tensor from two, and two over the same bytes from others.
  const c10::TensorImpl* beside = nullptr;
  for (Argument& argument : arguments_) {
    if (C10_UNLIKELY(argument.original == impl)) {
      argument.written |= written;
      auto host = argument.host;
      return hold(std::move(host), false);  // the recording names it twice
    }
    if (C10_UNLIKELY(argument.original->unsafe_storage().unsafeGetStorageImpl() == impl->unsafe_storage().unsafeGetStorageImpl())) {
      beside = argument.host.get();
    }
  }
  const bool computes_on_aliases = !on_host_ || substrate().alias_device().is_cpu();
  return hold(C10_LIKELY(computes_on_aliases) ? alias(impl, beside) : substrate().host_alias(impl), written);
}

void Call::look_at(const at::Tensor& tensor, size_t position) {
  span_.input(tensor.unsafeGetTensorImpl());
  if (C10_UNLIKELY(rule_.flags & kWaitsOnTensor)) {
    note_wait_condition(tensor, position);
  }
  if (C10_UNLIKELY(!tensor.is_mps())) {
    check_foreign(rule_, tensor, position, cpu_scalars_, sparse_);
  }
}

void Call::note_wait_condition(const at::Tensor& tensor, size_t position) {
  const Wait wait = wait_for_tensor(rule_, tensor, position);
  if (wait != Wait::None) {
    span_.wait(wait);
  }
}

at::Tensor Call::to_mps(at::Tensor&& result) {
  if (C10_UNLIKELY(!result.defined())) {
    return std::move(result);
  }
  c10::TensorImpl* impl = result.unsafeGetTensorImpl();
  if (C10_LIKELY((impl->is_cpu() || impl->device_type() == substrate().alias_device().type()) && impl->has_storage())) {
    const c10::Storage& storage = impl->unsafe_storage();
    // Nobody else holds it: it was made by this very call.
    if (C10_LIKELY(result.use_count() == 1 && storage.use_count() == 1)) {
      if (C10_LIKELY(impl->is_contiguous())) {
        check_rank(impl->sizes().size());  // allocated by sizes alone; with strides of its own nobody counts them
      }
      adopt(impl);
      if (span_.on()) {
        results_.push_back(impl);
      }
      return std::move(result);
    }
    if (at::Tensor original = original_of(impl); original.defined()) {
      return original;
    }
    const c10::Storage behind = storage_behind(storage.unsafeGetStorageImpl());
    if (behind) {
      if (behind.device_type() == c10::DeviceType::MPS) {
        return view_on_mps(result, behind);
      }  // else a view of a CPU input: copied below
    } else if (storage.device_type() == c10::DeviceType::MPS) {
      return view_on_mps(result, storage);  // another result of this call owns the storage and was adopted before
    } else if (result.use_count() == 1) {
      adopt(impl);  // several fresh results over one storage
      if (span_.on()) {
        results_.push_back(impl);
      }
      return std::move(result);
    }
    at::Tensor copy = result.clone();
    adopt(copy.unsafeGetTensorImpl());
    if (span_.on()) {
      results_.push_back(copy.unsafeGetTensorImpl());  // what Python made still has another holder, as on shapes
    }
    return copy;
  }
  if (at::Tensor original = original_of(impl); original.defined()) {
    return original;
  }
  if (impl->is_sparse() && !impl->is_mps()) {
    return sparse_to_mps(result, [this](const c10::StorageImpl* host) { return storage_behind(host); });
  }
  if (impl->is_cpu() && !impl->has_storage()) {
    return result.to(kMpsDevice);  // sparse CSR and its like: torch's own words
  }
  return std::move(result);
}

at::Tensor Call::original_of(const c10::TensorImpl* host) const {
  for (const Argument& argument : arguments_) {
    if (argument.host.get() == host) {
      return argument.tensor();
    }
  }
  return at::Tensor();
}

c10::Storage Call::storage_behind(const c10::StorageImpl* host) const {
  for (const Argument& argument : arguments_) {
    if (C10_UNLIKELY(!argument.host)) {
      continue;
    }
    if (C10_UNLIKELY(argument.host->is_sparse())) {
      if (c10::Storage storage = sparse_storage_behind(argument.tensor(), host)) {
        return storage;
      }
    } else if (argument.host->unsafe_storage().unsafeGetStorageImpl() == host) {
      return argument.original->storage();
    }
  }
  return c10::Storage();
}

void Call::carry_back() const {
  for (const Argument& argument : arguments_) {
    if (argument.written && C10_LIKELY(argument.host)) {
      if (C10_UNLIKELY(!on_host_)) {
        substrate().wrote(argument.tensor());
      }
      if (C10_UNLIKELY(argument.host->is_sparse())) {
        sparse_take_over(argument.tensor(), at::Tensor(argument.host));
      } else {
        take_over(argument.original, argument.host.get());
      }
    }
  }
}

// The kernel raised, perhaps after it had resized an out= tensor, which stays so on every device.
void Call::abandon() noexcept {
  // Nothing may leave here: the kernel's error is on its way already.
  try {
    carry_back();
  } catch (...) {
    // The Mac, or this machine, has no room for the resized tensor, which stays as it was.
  }
  try {
    if (span_.on() && !span_.take_refusal()) {
      span_.raised();  // a refusal has written its own entry
    }
  } catch (...) {
    // This machine has no room for the entry.
  }
}

void Call::finish() {
  carry_back();
  finished_ = true;
  if (span_.on() && !span_.take_refusal()) {  // a delayed error has written its own entry
    c10::SmallVector<const c10::TensorImpl*, 6> inputs;
    span_.end_with(
        [&]() -> Span::Tensors {
          inputs.clear();
          for (const Argument& argument : arguments_) {
            inputs.push_back(argument.original);
          }
          return inputs;
        },
        results_);
  }
  if (C10_UNLIKELY(span_.waits())) {
    host_has_waited();
  }
}

// Which calls are small: computed on the calling thread alone, as threads would wait for each other longer than they gain.
namespace {

constexpr size_t kShapeLooked = 8;  // dimensions of a call that may be small

// Multiplications of a product of matrices, or of a convolution with steps of one, which has the channels in place of the
// rows' length.
int64_t multiplications(Labor labor, const c10::TensorImpl* left, const c10::TensorImpl* right) {
  const c10::IntArrayRef sizes = left->sizes();
  if (sizes.empty() || left->numel() == 0) {
    return 0;
  }
  const bool convolves = labor == Labor::Convolution && sizes.size() > 1;
  int64_t shared = convolves ? sizes[1] : sizes.back();
  if (!convolves && sizes.size() == 3 && right->sizes().size() == 3) {
    shared *= sizes[0];  // of each matrix with its own
  }
  return left->numel() / shared * right->numel();
}

}  // namespace

bool Call::is_small() const {
  if (C10_UNLIKELY(!on_host_) || !has_several_threads()) {
    return false;
  }
  const LaborOfCall& labor = rule_.labor;
  int64_t elements = 0;
  for (const Argument& argument : arguments_) {
    elements += argument.original->numel();
  }
  if (elements > (labor.kind == Labor::Product ? kSmallFactors : kSmallCall)) {
    return false;
  }
  if (labor.kind == Labor::Broadcast) {
    return broadcasts_small();
  }
  if (labor.kind == Labor::Elements) {
    return true;
  }
  if (arguments_.size() <= labor.right) {
    return false;
  }
  const int64_t most = labor.kind == Labor::Convolution ? kSmallConvolution
      : elements > kSmallCall                           ? kSmallProductOfMany
                                                        : kSmallProduct;
  const c10::TensorImpl* left = arguments_[labor.left].original;
  return multiplications(labor.kind, left, arguments_[labor.right].original) <= most;
}

bool Call::broadcasts_small() const {
  std::array<int64_t, kShapeLooked> shape{};  // from the last dimension on
  int64_t most = 1;
  for (const Argument& argument : arguments_) {
    const c10::IntArrayRef sizes = argument.original->sizes();
    if (sizes.size() > shape.size()) {
      return false;
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      shape[i] = std::max(shape[i], sizes[sizes.size() - 1 - i]);
    }
  }
  for (const int64_t size : shape) {
    most *= std::max<int64_t>(size, 1);
    if (most > kSmallCall) {
      return false;
    }
  }
  return true;
}

// Sparse COO tensors: the parts are aliased, results are taken apart and put together again.
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
