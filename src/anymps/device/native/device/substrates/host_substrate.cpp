// The `host` substrate: allocation of this machine's memory, and the CPU's copy and read.
#include "device/substrates/host_substrate.h"

#include "device/calls/alias.h"
#include "device/memory/books.h"
#include "device/memory/host_results.h"
#include "device/memory/margins.h"
#include "device/memory/memory.h"

#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>

namespace anymps {
namespace {

at::Tensor cpu_side(const at::Tensor& tensor) {
  return tensor.is_mps() ? at::Tensor(alias(tensor.unsafeGetTensorImpl())) : tensor;
}

const SubstrateEntry host_entry("host", [](int) -> std::unique_ptr<Substrate> {
  host_results::watch();
  return std::make_unique<HostSubstrate>();
});

}  // namespace

at::DataPtr HostSubstrate::allocate(size_t nbytes) {
  Block* block = books().allocate(nbytes);
  at::DataPtr bytes;
  margins::Placement placement;
  try {
    bytes = margins::allocate(nbytes, placement);
  } catch (...) {
    books().release(block);
    throw;
  }
  void* data = placement.start == nullptr ? bytes.get() : placement.start;
  auto* buffer = new Buffer(std::move(bytes), block);
  buffer->placement = placement;
  return mps_pointer(data, buffer);
}

at::DataPtr HostSubstrate::adopt(at::DataPtr&& memory, size_t nbytes) {
  void* data = memory.get();
  if (data == nullptr || nbytes == 0) {
    return at::DataPtr(nullptr, kMpsDevice);
  }
  Block* block = books().allocate(nbytes);
  return mps_pointer(data, new Buffer(std::move(memory), block));
}

void* HostSubstrate::alias_address(const c10::StorageImpl* storage) const {
  return storage->data_ptr().get();
}

bool HostSubstrate::has_moved(const c10::StorageImpl* alias, const c10::StorageImpl* storage) const {
  return alias->data_ptr().get() != storage->data_ptr().get();
}

c10::DispatchKeySet HostSubstrate::alias_keys(c10::DispatchKeySet mps) const {
  return host_keys(mps);
}

c10::intrusive_ptr<c10::TensorImpl> HostSubstrate::host_alias(const c10::TensorImpl* tensor) {
  return alias(tensor);
}

void HostSubstrate::compute(
    const Rule&, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue>, const Computation&, bool) {
  op.redispatchBoxed(compute_key(), stack);
}

void HostSubstrate::copy(const at::Tensor& destination, const at::Tensor& source) {
  at::Tensor target = cpu_side(destination);
  at::native::copy_(target, cpu_side(source), /*non_blocking=*/false);
}

c10::Scalar HostSubstrate::read(const at::Tensor& tensor) {
  return at::native::_local_scalar_dense_cpu(cpu_side(tensor));
}

}  // namespace anymps
