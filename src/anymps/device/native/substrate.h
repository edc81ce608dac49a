// Where the bytes of an mps tensor live: host memory that CPU kernels can read and write in place.
//
// Unified memory means that one buffer serves both processors. The `host` substrate takes that at its word: every mps
// storage owns host bytes, and a CPU kernel works on an *alias*, a CPU tensor over the same bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>

namespace anymps {

struct Block;

// The owner of an mps storage's bytes; the context of its DataPtr.
struct Buffer {
  Buffer(at::DataPtr&& bytes, Block* block) : memory(std::move(bytes)), block(block) {}
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  at::DataPtr memory;                             // the host bytes
  Block* block;                                   // this buffer in the allocator's books
  std::atomic<c10::StorageImpl*> alias{nullptr};  // CPU storage over the same bytes, made at first use; owns one reference
};

inline const c10::Device kMpsDevice{c10::DeviceType::MPS, 0};

// Must run once, before any other call here: learns the key sets that plain tensors carry in this torch.
void initialize_substrate();

at::Allocator* mps_allocator();

// The Buffer behind an mps DataPtr, or nullptr for an empty storage.
Buffer* buffer_of(const at::DataPtr& data) noexcept;

// Makes `storage`, freshly filled by a CPU kernel, an mps storage without copying it.
void adopt_storage(c10::StorageImpl* storage);

// Makes a tensor that a CPU kernel has just created an mps tensor, in place. The dtype is checked as an allocation would.
void adopt(c10::TensorImpl* fresh);

// A CPU tensor over the same bytes as `tensor` (strided, on mps), with its sizes, strides, offset and conj/neg bits.
c10::intrusive_ptr<c10::TensorImpl> alias(const c10::TensorImpl* tensor);

// An mps tensor that looks at `base_storage` with the geometry of `view`, a CPU tensor made from an alias of it.
at::Tensor view_on_mps(const at::Tensor& view, const c10::Storage& base_storage);

// After a kernel that may have resized or re-pointed `alias`: carries that back to `original`.
void take_over(const at::Tensor& original, c10::TensorImpl* alias);

// The key set of a CPU tensor that stands for an mps tensor with `keys`.
c10::DispatchKeySet host_keys(c10::DispatchKeySet keys);
c10::DispatchKeySet mps_keys(c10::DispatchKeySet keys);

// Raises the real backend's error when a tensor of this dtype cannot be allocated on mps.
void check_allocatable(c10::ScalarType dtype);

}  // namespace anymps
