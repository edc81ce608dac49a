// The copies of one call that the CPU computes in place of the GPU, and where a GPU's kernels part from a Mac's.
#include "device/substrates/host_fallback.h"

#include "device/calls/alias.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <unordered_map>
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

// The list, by name with or without an overload, in which the longer one counts.
namespace {

using Given = GpuLimit::Arguments;

constexpr const char* kNeverOnTheGpu[] = {
    // A GPU would stop for a value, or follow one out of its tensor, and it is not looked at before
    // (kernels/checks/guarded_arguments.cpp).
    "aten::take",
    "aten::put_",
    "aten::put",
    "aten::masked_scatter",
    "aten::masked_scatter_",
    "aten::repeat_interleave",
    "aten::multi_margin_loss",
    "aten::multi_margin_loss_backward",
    "aten::multilabel_margin_loss_forward",
    "aten::multilabel_margin_loss_backward",
    "aten::_ctc_loss",
    "aten::_ctc_loss_backward",
    "aten::embedding_renorm_",
    "aten::bincount",
    "aten::segment_reduce",
    "aten::_segment_reduce_backward",
    "aten::fractional_max_pool2d",
    "aten::fractional_max_pool3d",
    "aten::lu_unpack",
    "aten::linalg_lu_solve",
    "aten::max_pool2d_with_indices_backward",
    "aten::max_pool3d_with_indices_backward",
    "aten::adaptive_max_pool2d_backward",
    "aten::adaptive_max_pool3d_backward",
    "aten::max_unpool2d",
    "aten::max_unpool3d",
    "aten::_embedding_bag",
    "aten::_embedding_bag_forward_only",
    "aten::_embedding_bag_backward",
    "aten::_embedding_bag_dense_backward",
    "aten::_embedding_bag_per_sample_weights_backward",
    "aten::_convert_indices_from_coo_to_csr",
    "aten::_convert_indices_from_csr_to_coo",
    "aten::_sparse_coo_tensor_with_dims_and_tensors",
    "aten::sparse_mask",
    "aten::_sparse_mask_projection",
    // Of equal values, a GPU's kernels tell the place of another one, and not always of the same.
    "aten::kthvalue",
    "aten::median.dim",
    "aten::median.dim_values",
    "aten::nanmedian.dim",
    "aten::nanmedian.dim_values",
};

c10::ScalarType type_of(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() ? value.toTensor().scalar_type() : c10::ScalarType::Undefined;
}

bool is_half(c10::ScalarType type) {
  return type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16;
}

// A cast on the way, from half precision.
bool casts_half(Given given) {
  return given.back().isBool() && given.back().toBool();
}

bool is_of_bools(Given given) {
  return type_of(given.front()) == c10::ScalarType::Bool;
}

bool is_complex(Given given) {
  return c10::isComplexType(type_of(given.front()));
}

bool is_into_integers(Given given) {
  return c10::isIntegralType(type_of(given.back()), /*includeBool=*/true);
}

// (self, dim, index, out)
bool selects_into_itself(Given given) {
  const at::Tensor& out = given.back().toTensor();
  return at::has_internal_overlap(out) == at::MemOverlap::Yes || out.is_alias_of(given[0].toTensor()) ||
      out.is_alias_of(given[2].toTensor());
}

bool is_of_integers(Given given) {
  return c10::isIntegralType(type_of(given[0]), true) && c10::isIntegralType(type_of(given[1]), true);
}

// (self, dim, dtype): summed in float32 and rounded once, where a GPU's kernel rounds at every step.
void sum_wide(Stack& stack, size_t first) {
  if (is_half(type_of(stack[first])) && stack[first + 2].isNone()) {
    stack[first + 2] = static_cast<int64_t>(c10::ScalarType::Float);
  }
}

void round_once(Given given, Stack& stack, size_t first) {
  const c10::ScalarType type = type_of(given.front());
  if (is_half(type) && given[2].isNone()) {
    stack[first] = stack[first].toTensor().to(type);
  }
}

// (input, weight, bias, running_mean, running_var, training, ..): without training, the statistics are the running ones,
// and the other two results are empty.
void keep_no_statistics(Given given, Stack& stack, size_t first) {
  if (!given[5].isBool() || given[5].toBool()) {
    return;
  }
  for (size_t i = first + 1; i < stack.size(); ++i) {
    stack[i] = at::empty({0}, stack[i].toTensor().options());
  }
}

std::unordered_map<std::string, GpuLimit> make_limits() {
  std::unordered_map<std::string, GpuLimit> limits;
  for (const char* name : kNeverOnTheGpu) {
    limits[name].never = true;
  }
  limits["aten::_log_softmax"].refused = &casts_half;
  for (const char* name : {"aten::abs", "aten::abs_"}) {
    limits[name].refused = &is_of_bools;
  }
  limits["aten::nansum"].refused = &is_complex;
  limits["aten::mean.out"].refused = &is_into_integers;
  limits["aten::index_select.out"].refused = &selects_into_itself;
  limits["aten::huber_loss"].refused = &is_of_integers;
  for (const char* name : {"aten::cumsum", "aten::cumprod"}) {
    limits[name].before = &sum_wide;
    limits[name].after = &round_once;
    for (const char* overload : {".out", ".dimname", ".dimname_out"}) {
      limits[std::string(name) + overload] = {};
    }
  }
  for (const char* name : {"aten::native_batch_norm", "aten::_native_batch_norm_legit"}) {
    limits[name].after = &keep_no_statistics;
    limits[std::string(name) + ".out"] = {};
  }
  limits["aten::_native_batch_norm_legit.no_stats"] = {};
  return limits;
}

}  // namespace

const GpuLimit* gpu_limit(const std::string& name) {
  static const std::unordered_map<std::string, GpuLimit> limits = make_limits();
  auto found = limits.find(name);
  if (found == limits.end()) {
    found = limits.find(name.substr(0, name.find('.')));
  }
  return found == limits.end() ? nullptr : &found->second;
}

}  // namespace anymps
