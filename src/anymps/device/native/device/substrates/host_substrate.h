// The `host` substrate: mps storages own bytes of this machine, and the CPU's kernels compute on them.
//
// For substrates that differ from it in a few points, which derive from it. No other code names it.
#pragma once

#include "device/interface/substrate.h"

namespace anymps {

class HostSubstrate : public Substrate {
 public:
  HostSubstrate() : Substrate(c10::DeviceType::CPU, c10::DispatchKey::CPU) {}

  at::DataPtr allocate(size_t nbytes) override;
  at::DataPtr adopt(at::DataPtr&& memory, size_t nbytes) override;
  void before_resize(const at::Tensor&, c10::IntArrayRef) override {}
  bool holds_data() const override {
    return true;
  }

  void* alias_address(const c10::StorageImpl* storage) const override;
  bool has_moved(const c10::StorageImpl* alias, const c10::StorageImpl* storage) const override;
  c10::DispatchKeySet alias_keys(c10::DispatchKeySet mps) const override;
  c10::intrusive_ptr<c10::TensorImpl> host_alias(const c10::TensorImpl* tensor) override;
  at::Tensor alias_of_foreign(const at::Tensor& tensor) override {
    return tensor;
  }

  bool computes_on_host(const Rule&, ArgumentWalk) override {
    return true;
  }
  void compute(
      const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, c10::ArrayRef<c10::IValue> given, const Computation& how,
      bool sparse) override;
  void wrote(const at::Tensor&) override {}
  void copy(const at::Tensor& destination, const at::Tensor& source) override;
  c10::Scalar read(const at::Tensor& tensor) override;
  at::Tensor stand_in(const at::Tensor&) override {
    return {};
  }
  void check_sparse() const override {}
};

}  // namespace anymps
