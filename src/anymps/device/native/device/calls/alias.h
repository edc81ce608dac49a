// What stands for an mps tensor while a kernel computes, and how a kernel's results become mps tensors.
//
// An alias is a tensor of the substrate's own device (a CPU tensor over the same bytes, a meta tensor) with the sizes,
// strides, offset and conj/neg bits of the mps tensor. Its storage names the buffer's bytes and does not own them. Nothing is
// copied either way.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <utility>

namespace anymps {

// Learns the key sets that plain tensors carry in this torch. Called once, when there is an allocator.
void learn_plain_keys();

// What a kernel computes on in place of `tensor` (strided, on mps). `beside`: the alias of another argument over the same storage.
c10::intrusive_ptr<c10::TensorImpl> alias(const c10::TensorImpl* tensor, const c10::TensorImpl* beside = nullptr);

// The same for a strided tensor that may be on another device: that one itself.
at::Tensor alias_if_mps(const at::Tensor& tensor);

// Both of a copy. Over one storage they have one, so that the copy sees where they overlap.
std::pair<at::Tensor, at::Tensor> aliases_of_copy(const at::Tensor& destination, const at::Tensor& source);

// A CPU tensor with the geometry of `tensor` over `bytes`, as many as its storage has.
c10::intrusive_ptr<c10::TensorImpl> alias_over_bytes(const c10::TensorImpl* tensor, void* bytes);

// Keeps an alias for a later call of this thread, if nobody else holds it and a kernel has left nothing on it: to make one
// costs more than the rest of a small call.
void give_back(c10::intrusive_ptr<c10::TensorImpl> alias) noexcept;

// Makes `storage`, freshly filled by a kernel, an mps storage without copying it.
void adopt_storage(c10::StorageImpl* storage);

// Makes a tensor that a kernel has just created an mps tensor, in place. The dtype is checked as an allocation would.
void adopt(c10::TensorImpl* fresh);

// An mps tensor that looks at `base_storage` with the geometry of `view`, a tensor made from an alias of it.
at::Tensor view_on_mps(const at::Tensor& view, const c10::Storage& base_storage);

// After a kernel that may have resized or re-pointed `alias`: carries that back to `original`.
void take_over(c10::TensorImpl* original, c10::TensorImpl* alias);

// The key set of a tensor of the CPU, or of another backend, that stands for an mps tensor with `keys`; and back.
c10::DispatchKeySet host_keys(c10::DispatchKeySet keys);
c10::DispatchKeySet backend_keys(c10::DispatchKeySet keys, c10::BackendComponent backend);
c10::DispatchKeySet mps_keys(c10::DispatchKeySet keys);

}  // namespace anymps
