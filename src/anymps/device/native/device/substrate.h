// Where the bytes of an mps tensor live, and what stands for the tensor while a kernel computes.
//
// Unified memory means that one buffer serves both processors. The `host` substrate takes that at its word: every mps
// storage owns host bytes, and a CPU kernel works on an *alias*, a CPU tensor over the same bytes. The `shape` substrate
// owns no bytes: an alias is a meta tensor, and meta kernels work out the shapes. Only small tensors whose values follow
// from known ones keep bytes there, because programs branch on them (masks, lengths, a gradient scaler's factor).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <atomic>

namespace anymps {

struct Block;

enum class Substrate : uint8_t { Host, Shape };
void choose_substrate(Substrate substrate);  // before anything is allocated
extern bool shapes_only;                     // the `shape` substrate is in force

// What is known of a buffer's values on the `shape` substrate: nothing was written yet, all of it, or not any more.
enum class Values : uint8_t { Blank, Known, Unknown };

// The owner of an mps storage's bytes; the context of its DataPtr.
struct Buffer {
  Buffer(at::DataPtr&& bytes, Block* block);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void assign(uint8_t role, uint32_t module);  // says in the recording what it is; `role` is Role

  at::DataPtr memory;                             // the host bytes; on the `shape` substrate only while the values are known
  Block* block;                                   // this buffer in the allocator's books
  uint32_t row;                                   // and in the ledger, 0 if it was born while nothing recorded
  std::atomic<c10::StorageImpl*> alias{nullptr};  // storage of the aliases, made at first use; owns one reference
  std::atomic<c10::TensorImpl*> spare{nullptr};   // an alias that no call uses at the moment; owns one reference
  std::atomic<Values> values{Values::Blank};      // of the `shape` substrate
};

inline const c10::Device kMpsDevice{c10::DeviceType::MPS, 0};

// Must run once, before any other call here: learns the key sets that plain tensors carry in this torch.
void initialize_substrate();

at::Allocator* mps_allocator();

// The Buffer behind an mps DataPtr, or nullptr for an empty storage.
Buffer* buffer_of(const at::DataPtr& data) noexcept;

// Makes `storage`, freshly filled by a kernel, an mps storage without copying it.
void adopt_storage(c10::StorageImpl* storage);

// Makes a tensor that a kernel has just created an mps tensor, in place. The dtype is checked as an allocation would.
void adopt(c10::TensorImpl* fresh);

// What a kernel computes on in place of `tensor` (strided, on mps), with its sizes, strides, offset and conj/neg bits: a
// CPU tensor over the same bytes, or a meta tensor on the `shape` substrate.
c10::intrusive_ptr<c10::TensorImpl> alias(const c10::TensorImpl* tensor);

// Keeps an alias of `tensor` for the next call over the same buffer, if nobody else holds it and a kernel has left nothing
// on it: to make one costs more than the rest of a small call.
void give_back(const c10::TensorImpl* tensor, c10::intrusive_ptr<c10::TensorImpl>&& alias) noexcept;

// A CPU tensor over the same bytes. On the `shape` substrate the values must be known.
c10::intrusive_ptr<c10::TensorImpl> bytes_alias(const c10::TensorImpl* tensor);

// On the `shape` substrate: whether the values of `tensor` are known; whether they are after a write of known values to
// all or, if `covers` is false, to a part of it (bytes are made ready then); and that they are known no longer. A tensor
// that is not on mps is known, unless it has no values itself.
bool has_values(const at::Tensor& tensor);
bool take_values(const at::Tensor& tensor, bool covers);
void forget_values(const at::Tensor& tensor);

void keep_values_up_to(size_t bytes);  // a buffer of the `shape` substrate; 1 MiB if never called

// The dispatch key of the kernels that compute: CPU, or Meta on the `shape` substrate.
c10::DispatchKeySet compute_key();

// An mps tensor that looks at `base_storage` with the geometry of `view`, a CPU tensor made from an alias of it.
at::Tensor view_on_mps(const at::Tensor& view, const c10::Storage& base_storage);

// After a kernel that may have resized or re-pointed `alias`: carries that back to `original`.
void take_over(c10::TensorImpl* original, c10::TensorImpl* alias);

// The key set of a CPU or meta tensor that stands for an mps tensor with `keys`, and back.
c10::DispatchKeySet host_keys(c10::DispatchKeySet keys, bool meta = false);
c10::DispatchKeySet mps_keys(c10::DispatchKeySet keys);

// Raises the real backend's error when a tensor of this dtype cannot be allocated on mps.
void check_allocatable(c10::ScalarType dtype);
// Raises for more dimensions than an allocation by sizes alone takes.
void check_rank(size_t dimensions);

}  // namespace anymps
