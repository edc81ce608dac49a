// The copies of one call that the CPU computes in place of the GPU.
#include "device/substrates/host_fallback.h"

#include "device/calls/alias.h"
#include "device/interface/boxed_values.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <vector>

namespace anymps {
namespace {

using torch::jit::Stack;

// Calls body(tensor, written) for each tensor among the arguments, and puts its answer there.
template <class Body>
void each_argument(const Rule& rule, const c10::FunctionSchema& schema, Stack& stack, size_t first, Body&& body) {
  for (size_t i = first; i < stack.size(); ++i) {
    const size_t argument = i - first;
    // The running statistics of a normalization are written, though no schema says so.
    const bool written = (argument < 64 && ((rule.writes >> argument) & 1)) || schema.arguments()[argument].name().rfind("running_", 0) == 0;
    replace_tensors(stack[i], [&](const at::Tensor& tensor) { return body(tensor, written); });
  }
}

class HostFallback {
 public:
  HostFallback(const Rule& rule, const c10::OperatorHandle& op, c10::Device gpu) : rule_(rule), op_(op), gpu_(gpu) {}

  void take(Stack& stack, size_t first) {
    each_argument(rule_, op_.schema(), stack, first, [&](const at::Tensor& tensor, bool written) {
      note(tensor, written);
      return tensor;
    });
    each_argument(rule_, op_.schema(), stack, first, [&](const at::Tensor& tensor, bool) { return to_cpu(tensor); });
    for (size_t i = first; i < stack.size(); ++i) {
      if (stack[i].isDevice() && stack[i].toDevice() == gpu_) {
        stack[i] = c10::Device(c10::DeviceType::CPU);
      }
    }
  }

  void carry_back() {
    for (Argument& argument : arguments_) {
      if (argument.written && argument.host.defined()) {
        carry_back(argument);
      }
    }
  }

  // The kernel's error is the one to raise.
  void carry_back_after_error() noexcept {
    try {
      carry_back();
    } catch (...) {
      // There is no room for the resized tensor, which stays as it was.
    }
  }

  void bring_results(Stack& stack, size_t first) {
    for (size_t i = first; i < stack.size(); ++i) {
      replace_tensors(stack[i], [&](const at::Tensor& result) { return to_gpu(result); });
    }
  }

 private:
  struct Argument {
    at::Tensor gpu;
    at::Tensor host;
    bool written;
  };

  static c10::StorageImpl* storage_of(const at::Tensor& tensor) {
    return tensor.has_storage() ? tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() : nullptr;
  }

  void note(const at::Tensor& tensor, bool written) {
    if (!tensor.defined() || tensor.device().type() != gpu_.type()) {
      return;
    }
    for (Argument& argument : arguments_) {
      if (argument.gpu.is_same(tensor)) {
        argument.written |= written;
        return;
      }
    }
    arguments_.push_back({tensor, at::Tensor(), written});
  }

  at::Tensor to_cpu(const at::Tensor& tensor) {
    for (Argument& argument : arguments_) {
      if (argument.gpu.is_same(tensor)) {
        if (!argument.host.defined()) {
          const bool as_it_lies = shares_a_written_storage(argument) || (argument.written && overlaps_itself(tensor));
          argument.host = as_it_lies ? view_of_copy(tensor) : copy_of(tensor);
        }
        return argument.host;
      }
    }
    return tensor;
  }

  // A copy would not: kernels refuse to write into it.
  static bool overlaps_itself(const at::Tensor& tensor) {
    return tensor.has_storage() && at::has_internal_overlap(tensor) == at::MemOverlap::Yes;
  }

  bool shares_a_written_storage(const Argument& argument) const {
    const c10::StorageImpl* storage = storage_of(argument.gpu);
    bool shared = false, written = argument.written;
    for (const Argument& other : arguments_) {
      if (&other != &argument && storage != nullptr && storage_of(other.gpu) == storage) {
        shared = true;
        written |= other.written;
      }
    }
    return shared && written;
  }

  static at::Tensor copy_of(const at::Tensor& tensor) {
    at::Tensor host = tensor.to(tensor.options().device(c10::kCPU), /*non_blocking=*/false, /*copy=*/true);
    if (C10_UNLIKELY(tensor.unsafeGetTensorImpl()->is_wrapped_number())) {
      host.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    return host;
  }

  at::Tensor view_of_copy(const at::Tensor& tensor) {
    const c10::StorageImpl* storage = storage_of(tensor);
    const c10::Storage* copied = nullptr;
    for (const auto& [original, copy] : storages_) {
      if (original == storage) {
        copied = &copy;
      }
    }
    if (copied == nullptr) {
      const at::Tensor bytes = at::for_blob(const_cast<void*>(storage->data()), {static_cast<int64_t>(storage->nbytes())})
                                   .options(at::TensorOptions().dtype(c10::kByte).device(gpu_))
                                   .target_device(gpu_)
                                   .make_tensor();
      storages_.emplace_back(storage, copy_of(bytes).storage());
      copied = &storages_.back().second;
    }
    return at::empty({0}, tensor.options().device(c10::kCPU))
        .set_(*copied, tensor.storage_offset(), tensor.sizes(), tensor.strides());
  }

  static void carry_back(const Argument& argument) {
    const at::Tensor &gpu = argument.gpu, &host = argument.host;
    if (!gpu.is_sparse() && !gpu.sizes().equals(host.sizes())) {
      gpu.resize_(host.sizes());
      if (!gpu.strides().equals(host.strides())) {
        gpu.as_strided_(host.sizes(), host.strides());
      }
    }
    gpu.copy_(host);
  }

  at::Tensor to_gpu(const at::Tensor& result) const {
    if (!result.defined() || !result.is_cpu()) {
      return result;
    }
    for (const Argument& argument : arguments_) {
      if (argument.host.is_same(result)) {
        return argument.gpu;
      }
    }
    if (gpu_.is_cpu()) {
      return result;
    }
    return result.to(result.options().device(gpu_));
  }

  const Rule& rule_;
  const c10::OperatorHandle& op_;
  const c10::Device gpu_;
  std::vector<Argument> arguments_;
  std::vector<std::pair<const c10::StorageImpl*, c10::Storage>> storages_;
};

}  // namespace

void run_host_fallback(const Rule& rule, const c10::OperatorHandle& op, Stack* stack, size_t first, const Computation& how, c10::Device gpu) {
  HostFallback fallback(rule, op, gpu);
  fallback.take(*stack, first);
  try {
    how.by_cpu(stack, first);
  } catch (...) {
    fallback.carry_back_after_error();  // a tensor that was given for the result keeps its new size
    throw;
  }
  fallback.carry_back();
  fallback.bring_results(*stack, first);
}

}  // namespace anymps
