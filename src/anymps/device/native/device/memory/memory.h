// The buffers of mps tensors, and the allocator that torch asks for them.
#pragma once

#include <c10/core/Allocator.h>
#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

namespace anymps {
namespace margins {

// Where the bytes of a buffer lie between its margins (margins.h).
struct Placement {
  char* start = nullptr;  // null: there are none
  size_t nbytes = 0, behind = 0;
  bool marked = false;  // whether the margins hold what is looked for after a launch
};

}  // namespace margins

struct Block;

inline const c10::Device kMpsDevice{c10::DeviceType::MPS, 0};

// The owner of an mps storage's bytes; the context of its DataPtr. A substrate that knows more of a buffer derives from it.
struct Buffer {
  Buffer(at::DataPtr&& bytes, Block* block);
  virtual ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void assign(uint8_t role, uint32_t module);  // says in the recording what it is; `role` is Role

  at::DataPtr memory;            // the bytes, if the substrate holds any
  Block* block;                  // this buffer in the allocator's books
  uint32_t row;                  // and in the ledger, 0 if it was born while nothing recorded
  margins::Placement placement;  // its place between margins, if it has any
};

// Registers the allocator with torch. Called once, when the substrate is chosen.
void install_allocator();

at::Allocator* mps_allocator();

// The pointer of an mps storage to `address`, which owns `buffer`.
at::DataPtr mps_pointer(void* address, Buffer* buffer);

// A buffer of `nbytes` > 0, entered in the books before `take()` gives its memory.
at::DataPtr mps_memory(size_t nbytes, c10::function_ref<at::DataPtr()> take);

// The Buffer behind an mps DataPtr, or nullptr for an empty storage.
Buffer* buffer_of(const at::DataPtr& data) noexcept;

// Raises the real backend's error when a tensor of this dtype cannot be allocated on mps.
void check_allocatable(c10::ScalarType dtype);
// Raises for more dimensions than an allocation by sizes alone takes.
void check_rank(size_t dimensions);

// Pinned memory: CPU tensors whose bytes are a buffer of the device.
// What `pin_memory=True` allocates with. Up to torch 2.13 the device's own allocator, whose memory torch then refuses for
// a CPU tensor (pytorch issue 86060); from 2.14 on CPU memory that counts among the device's.
c10::Allocator* pinned_allocator();

// Whether pinned memory begins here.
bool is_pinned(const void* data);

// Registers what `torch.accelerator.empty_host_cache()` asks for. A Mac registers nothing: up to torch 2.14 the call then
// goes through a null pointer (at::accelerator::emptyHostCache), from 2.15 on it does nothing.
void install_host_cache();

}  // namespace anymps
