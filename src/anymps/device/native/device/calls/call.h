// One operator call: inputs become aliases, a kernel of the substrate or of the CPU runs, results become mps tensors.
#pragma once

#include "device/calls/alias.h"
#include "device/calls/backward_thread.h"
#include "device/errors/fork.h"
#include "device/memory/books.h"
#include "device/memory/memory.h"
#include "device/errors/refusals.h"
#include "device/interface/substrate.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include <functional>

namespace anymps {

class Call {
 public:
  // `on_host` is what Substrate::computes_on_host says of it.
  Call(const Rule& rule, bool sparse, bool on_host)
      : rule_(rule), sparse_(sparse), on_host_(on_host), making_(on_host ? &rule : nullptr), below_autograd_(unseen_by()), span_(rule) {
    enter_device();
    backward_thread::note_saved_tensor_hooks();
    if (C10_LIKELY((rule.flags & kConditionalWait) == 0)) {
      span_.wait(rule.wait);
    }
  }
  ~Call() {
    if (C10_UNLIKELY(!finished_)) {
      abandon();
    }
    for (Argument& argument : arguments_) {
      if (C10_LIKELY(argument.original->is_mps() && argument.host)) {
        give_back(std::move(argument.host));
      }
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  const Rule& rule() const {
    return rule_;
  }
  Span& span() {
    return span_;
  }
  // Where the kernels lie that compute this call.
  c10::DispatchKeySet key() const {
    return C10_LIKELY(on_host_) ? c10::DispatchKeySet(c10::DispatchKey::CPU) : substrate().compute_key();
  }

  bool on_host() const {
    return on_host_;
  }
  // Whether the CPU computes it, and threads would cost more than they gain (one_thread.h).
  bool is_small() const;
  // What stands for `mps` where an argument names a device.
  c10::Device device() const {
    const c10::Device alias = substrate().alias_device();
    return on_host_ || alias.is_meta() ? c10::Device(c10::DeviceType::CPU) : alias;
  }

  // What to hand to a kernel in place of `tensor`, which must outlive the call. Undefined tensors pass.
  at::Tensor to_alias(const at::Tensor& tensor, bool written, size_t position);
  // The same for a tensor that is defined; the call holds it.
  c10::TensorImpl* alias_of(const at::Tensor& tensor, bool written, size_t position);

  // The mps tensor to hand out in place of a kernel's result.
  at::Tensor to_mps(at::Tensor&& result);

  // Carries resizes and re-pointed storages of written arguments back, and writes the tape's entry.
  void finish();

 private:
  // The caller holds the original for as long as the call lasts: another reference to a tensor that Python holds alone would
  // take the GIL twice (torch 2.13, c10/util/intrusive_ptr.h).
  struct Argument {
    c10::TensorImpl* original;
    c10::intrusive_ptr<c10::TensorImpl> host;
    bool written;
    at::Tensor tensor() const {
      return at::Tensor(c10::intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>::unsafe_reclaim_from_nonowning(original));
    }
  };

  // Neither autograd nor `torch.jit.trace`, to which they would be constants, is to see operators on aliases; nor is autocast of
  // the aliases' device, which a Mac's tensors do not obey.
  static constexpr c10::DispatchKeySet unseen_by() {
    return c10::autograd_dispatch_keyset_with_ADInplaceOrView |
        c10::DispatchKeySet({c10::DispatchKey::Tracer, c10::DispatchKey::AutocastCPU, c10::DispatchKey::AutocastCUDA});
  }

  const Rule& rule_;
  const bool sparse_;
  const bool on_host_;
  const host_results::Making making_;
  c10::impl::ExcludeDispatchKeyGuard below_autograd_;
  Span span_;
  c10::SmallVector<Argument, 6> arguments_;
  c10::SmallVector<const c10::TensorImpl*, 4> results_;
  // The argument that a CPU kernel saw as `host`, or an undefined tensor.
  at::Tensor original_of(const c10::TensorImpl* host) const;
  void carry_back() const;
  void abandon() noexcept;
  bool broadcasts_small() const;
  void look_at(const at::Tensor& tensor, size_t position);
  void note_wait_condition(const at::Tensor& tensor, size_t position);

  // The storage of an argument of this call whose bytes a CPU kernel sees as `host`, or an empty one.
  c10::Storage storage_behind(const c10::StorageImpl* host) const;

  int cpu_scalars_ = 0;
  bool finished_ = false;
};

// Sparse COO tensors: an alias of the parts, and back.
using StorageLookup = std::function<c10::Storage(const c10::StorageImpl*)>;
at::Tensor sparse_to_host(const at::Tensor& tensor);
at::Tensor sparse_to_mps(const at::Tensor& host, const StorageLookup& storage_behind = {});
void sparse_take_over(const at::Tensor& original, const at::Tensor& host);
// The storage of indices or values of `original` (sparse, on mps) whose alias `host` is, or an empty one.
c10::Storage sparse_storage_behind(const at::Tensor& original, const c10::StorageImpl* host);

}  // namespace anymps
