// The list, by name with or without an overload, in which the longer one counts.
#include "device/substrates/gpu_limits.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <unordered_map>

namespace anymps {
namespace {

using Given = GpuLimit::Arguments;
using torch::jit::Stack;

// A GPU would stop for a value, or follow one out of its tensor, and it is not looked at before
// (kernels/checks/guarded_arguments.cpp).
constexpr const char* kStopsTheGpu[] = {
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
};

// Of equal values, a GPU's kernels tell the place of another one, and not always of the same.
constexpr const char* kTellsPlaces[] = {
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
  for (const char* name : kStopsTheGpu) {
    limits[name].never = true;
  }
  for (const char* name : kTellsPlaces) {
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
