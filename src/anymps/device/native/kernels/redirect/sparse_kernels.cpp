// The one operator about sparse COO tensors that needs a kernel of its own.
#include "device/device.h"
#include "kernels/redirect/kernel_table.h"

#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args_native.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args_ops.h>

namespace anymps {
namespace {

at::Tensor on_host(const at::Tensor& part) {
  return part.unsafeGetTensorImpl()->is_mps() ? at::Tensor(alias(part.unsafeGetTensorImpl())) : part;
}

// The check of a coalesced tensor's indices flattens them, by a table that has no entry for mps off a Mac (MPS's is in
// FlattenIndices.mm): that part is asked of the host.
void validate(
    const at::Tensor& indices,
    const at::Tensor& values,
    at::IntArrayRef size,
    std::optional<bool> is_coalesced,
    std::optional<bool> check_pinning) {
  at::native::_validate_sparse_coo_tensor_args(indices, values, size, false, check_pinning);
  if (is_coalesced.value_or(false)) {
    at::_validate_sparse_coo_tensor_args(on_host(indices), on_host(values), size, true, false);
  }
}

}  // namespace

void add_sparse_kernels(CompositeTable& table) {
  table.push_back(
      {full_name<at::_ops::_validate_sparse_coo_tensor_args>(),
       c10::KernelFunction::makeFromUnboxedRuntimeFunction(&validate),
       {}});
}

}  // namespace anymps
