// The `host` substrate: mps storages own bytes of this machine, and the CPU's kernels compute on them.
#include "device/calls/alias.h"
#include "device/interface/substrate.h"
#include "device/memory/books.h"
#include "device/memory/margins.h"
#include "device/memory/memory.h"

#include <ATen/ops/_local_scalar_dense_native.h>
#include <ATen/ops/copy_native.h>

namespace anymps {
namespace {

class HostSubstrate final : public Substrate {
 public:
  HostSubstrate() : Substrate(c10::DeviceType::CPU, c10::DispatchKey::CPU) {}

  at::DataPtr allocate(size_t nbytes) override {
    margins::Placement placement;
    at::DataPtr made = mps_memory(nbytes, [&] { return margins::allocate(nbytes, placement); });
    if (placement.start == nullptr) {
      return made;
    }
    auto* buffer = static_cast<Buffer*>(made.release_context());
    buffer->placement = placement;
    return mps_pointer(placement.start, buffer);
  }

  at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) override {
    if (memory.get() == nullptr || nbytes == 0) {
      return at::DataPtr(nullptr, kMpsDevice);
    }
    return mps_memory(nbytes, [&] { return std::move(memory); });
  }

  c10::DispatchKeySet alias_keys(c10::DispatchKeySet mps) const override {
    return host_keys(mps);
  }
  c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) override {
    return alias(tensor);
  }
  at::Tensor alias_of_foreign(const at::Tensor& tensor) override {
    return tensor;
  }

  bool computes_on_host(const Rule&, ArgumentWalk) override {
    return true;
  }
  void compute(
      const Rule&, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue>, const Computation&, bool) override {
    op.redispatchBoxed(compute_key(), stack);
  }
  void copy(const at::Tensor& destination, const at::Tensor& source) override {
    auto [target, from] = aliases_of_copy(destination, source);
    at::native::copy_(target, from, /*non_blocking=*/false);
  }
  c10::Scalar read(const at::Tensor& tensor) override {
    return at::native::_local_scalar_dense_cpu(alias_if_mps(tensor));
  }
};

const SubstrateEntry host_entry("host", [](int) -> std::unique_ptr<Substrate> {
  host_results::watch();
  return std::make_unique<HostSubstrate>();
});

}  // namespace
}  // namespace anymps
