// Aliasing of arguments and adoption of results, shared by the boxed and the unboxed kernels.
#include "device/calls/call.h"

#include "device/memory/waits.h"

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

}  // namespace anymps
