// How each known fault is recognised: conditions on sizes, strides, dtypes and arguments (anymps/rules/faults/_model.py).
#include "rules/hazard_checks.h"

#include <ATen/Context.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <optional>

namespace anymps::hazard_checks {
namespace {

using c10::ScalarType;

bool is_wide(ScalarType type) {
  return type == ScalarType::Double || type == ScalarType::ComplexDouble;
}

// Whether the elements lie without gaps, in whatever order.
bool is_dense(Impl tensor) {
  int64_t reach = 1;
  for (int64_t i = 0; i < tensor->dim(); ++i) {
    reach += (tensor->size(i) - 1) * tensor->stride(i);
  }
  return tensor->numel() == 0 || reach == tensor->numel();
}

bool is_complex(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && c10::isComplexType(type_of(self));
}

// --- copies: Copy.mm casts and moves one run of memory where target and source have equal strides, and gathers otherwise

struct Copy {
  Impl to, from;
  bool straight, casts;
};

std::optional<Copy> copy_to_cpu(const Seen& seen) {
  const Impl to = seen.any_tensor(0), from = seen.tensor(1);
  if (to == nullptr || from == nullptr || to->is_mps()) {
    return std::nullopt;
  }
  return Copy{to, from, to->sizes() == from->sizes() && to->strides() == from->strides(), to->dtype() != from->dtype()};
}

bool narrowing_copy(const Seen& seen) {
  const auto copy = copy_to_cpu(seen);
  return copy && copy->straight && copy->casts && copy->from->storage_offset() == 0 && copy->to->itemsize() <= copy->from->itemsize();
}

bool offset_copy(const Seen& seen) {
  const auto copy = copy_to_cpu(seen);
  return copy && copy->straight && copy->casts && copy->from->storage_offset() != 0;
}

bool gappy_copy(const Seen& seen) {
  const auto copy = copy_to_cpu(seen);
  return copy && copy->straight && !is_dense(copy->from);
}

bool double_copy(const Seen& seen) {
  const auto copy = copy_to_cpu(seen);
  return copy && copy->casts && is_wide(type_of(copy->to));
}

bool cpu_scalar_view(const Seen& seen) {
  for (const size_t role : {0, 1}) {
    const Impl scalar = seen.any_tensor(role);
    if (scalar != nullptr && scalar->is_cpu() && scalar->dim() == 0 && scalar->storage_offset() != 0 &&
        !is_wide(type_of(scalar)) && seen.tensor(1 - role) != nullptr) {
      return true;
    }
  }
  return false;
}

// --- numbers

bool integers(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && c10::isIntegralType(type_of(self), /*includeBool=*/false);
}

bool bfloat16(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && type_of(self) == at::kBFloat16;
}

// One dimension: whichever is asked for, all numbers make one result.
bool int64_row(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && type_of(self) == at::kLong && self->dim() == 1 && seen.in_range(self->numel());
}

// --- convolution: roles are input, weight, then what a check needs

bool strided_weight(const Seen& seen) {
  const Impl weight = seen.tensor(1);
  return weight != nullptr && weight->dim() == 4 && !weight->is_contiguous() && !weight->is_contiguous(at::MemoryFormat::ChannelsLast);
}

bool channel_slice(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() == 4 && input->is_strides_like_channels_last() &&
      !input->is_contiguous(at::MemoryFormat::ChannelsLast) && !input->is_contiguous();
}

bool wide_kernel(const Seen& seen) {
  const Impl weight = seen.tensor(1);
  for (int64_t i = 2; weight != nullptr && weight->dim() == 4 && i < 4; ++i) {
    if (seen.in_range(weight->size(i))) {
      return true;
    }
  }
  return false;
}

bool large_minibatch(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() > 0 && seen.in_range(input->size(0)) && seen.wants(2, 1);
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, ...): every dimension of the result.
bool large_output(const Seen& seen) {
  const Impl input = seen.tensor(0), weight = seen.tensor(1);
  if (input == nullptr || weight == nullptr || seen.all.size() < 7 || seen.all[6].number != 0) {
    return false;
  }
  for (const size_t place : {3, 4, 5}) {
    if (seen.all[place].kind != Operand::Kind::Sizes) {
      return false;
    }
  }
  const auto option = [&](size_t place) { return c10::SymIntArrayRef(seen.all[place].sizes, seen.all[place].count); };
  return convolution_passes(seen.row.low, *input, *weight, option(3), option(4), option(5));
}

bool convolution_3d(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && input->dim() == 5 && input->is_contiguous();
}

// --- normalisation and recurrent layers

bool strided_norm(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && seen.in_range(input->dim()) && !input->is_contiguous();
}

// Whether the layer's own numbers, of the roles from `first` on, have another dtype than its input.
bool mixed(const Seen& seen, size_t first, size_t last) {
  const Impl input = seen.tensor(0);
  for (size_t role = first; input != nullptr && role <= last; ++role) {
    const Impl own = seen.tensor(role);
    if (own != nullptr && own->dtype() != input->dtype()) {
      return true;
    }
  }
  return false;
}

bool mixed_layer_norm(const Seen& seen) {
  return mixed(seen, 1, 2);
}

bool mixed_layer_norm_backward(const Seen& seen) {
  return seen.wants(2, 0) && mixed(seen, 1, 1);
}

bool mixed_batch_norm(const Seen& seen) {
  return mixed(seen, 1, 3);
}

bool norm_without_input_gradient(const Seen& seen) {
  return !seen.wants(2, 0) && (seen.wants(2, 1) || seen.wants(2, 2));
}

// lstm(input, hx, params, has_biases, num_layers, dropout, train, ...)
bool lstm_drops(const Seen& seen) {
  return seen.tensor(0) != nullptr && seen.all.size() > 6 && seen.all[4].number >= 2 && seen.all[5].number > 0 && seen.all[6].number != 0;
}

bool lstm_dropout_backward(const Seen& seen) {
  if (!lstm_drops(seen) || !c10::GradMode::is_enabled()) {
    return false;
  }
  const Operand& params = seen.all[2];
  const bool trained = params.kind == Operand::Kind::Tensors &&
      std::any_of(params.tensors, params.tensors + params.count, [](const at::Tensor& tensor) { return tensor.requires_grad(); });
  return trained || seen.tensor(0)->requires_grad();
}

bool lstm_strided(const Seen& seen) {
  const Impl input = seen.tensor(0);
  return input != nullptr && !input->is_contiguous() && input->requires_grad() && c10::GradMode::is_enabled();
}

// --- adaptive pools: AdaptivePooling.mm runs one max pool with one kernel and stride for all windows

// Whether that pool has other windows than the adaptive one. What a Mac refuses is not meant: mixed directions, a stride of
// 0, a kernel larger than the input.
bool uneven_windows(const Seen& seen) {
  const Impl input = seen.tensor(0), gradient = seen.tensor(1);
  const Operand& asked = seen.at(1);
  const bool sizes = asked.kind == Operand::Kind::Sizes && asked.count == 2;
  if (input == nullptr || input->dim() < 3 || (!sizes && (gradient == nullptr || gradient->dim() < 2))) {
    return false;
  }
  bool others = false, shrinks = false;
  for (const int64_t i : {0, 1}) {
    const int64_t in = input->size(input->dim() - 2 + i);
    const int64_t out = sizes ? asked.sizes[i].expect_int() : gradient->size(gradient->dim() - 2 + i);
    shrinks = i == 0 ? in >= out : shrinks;  // the height decides
    const int64_t large = shrinks ? in : out, small = shrinks ? out : in;
    if (small <= 0 || large < small) {
      return false;
    }
    const int64_t stride = large / small, kernel = large - (small - 1) * stride;
    if (kernel > in) {
      return false;
    }
    others = others || in < out || kernel > stride + 1;  // windows that share one element at most are the adaptive ones
  }
  return others;
}

// --- attention: query, key, value, attn_mask, dropout_p, is_causal

bool value_width(const Seen& seen) {
  const Impl query = seen.tensor(0), value = seen.tensor(1);
  return query != nullptr && value != nullptr && query->dim() > 0 && value->dim() > 0 &&
      query->size(query->dim() - 1) != value->size(value->dim() - 1);
}

bool causal_half(const Seen& seen) {
  const Impl query = seen.tensor(0);
  return query != nullptr && query->dim() >= 2 && seen.number(2) != 0 && query->size(query->dim() - 2) >= 2 && is_half(query);
}

// --- transforms: _fft_c2c(self, dim, ...); MPSGraph transforms the last four dimensions only

bool outer_transform(const Seen& seen) {
  const Impl self = seen.tensor(0);
  const Operand& dims = seen.at(1);
  return self != nullptr && dims.kind == Operand::Kind::Sizes && dimensions_among_last(self, dims, 4) < dims.count;
}

// --- sizes

bool elements(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && seen.above(self->numel());
}

bool cat_elements(const Seen& seen) {
  const Operand& list = seen.at(0);
  int64_t sum = 0;
  if (list.kind == Operand::Kind::Tensors) {
    for (uint32_t i = 0; i < list.count; ++i) {
      sum += list.tensors[i].numel();
    }
  } else if (list.kind == Operand::Kind::TensorRefs) {
    for (const at::Tensor& tensor : *list.refs) {
      sum += tensor.numel();
    }
  }
  return seen.above(sum);
}

bool fold_elements(const Seen& seen) {
  const Impl self = seen.tensor(0);
  return self != nullptr && self->dim() >= 2 && seen.above(self->size(self->dim() - 1) * self->size(self->dim() - 2));
}

bool bytes(const Seen& seen) {
  for (const Operand& operand : seen.all) {
    if (operand.kind == Operand::Kind::Tensor && operand.tensor->is_mps() && !operand.tensor->is_sparse() &&
        seen.above(bytes_of(operand.tensor))) {
      return true;
    }
  }
  return false;
}

bool deterministic(const Seen&) {
  return at::globalContext().deterministicAlgorithms();
}

// What a GradScaler hands to a fused optimizer.
bool grad_scaler(const Seen& seen) {
  return seen.any_tensor(0) != nullptr || seen.any_tensor(1) != nullptr;
}

bool half_gradients(const Seen& seen) {
  const Operand& list = seen.at(0);
  return list.kind == Operand::Kind::Tensors && std::any_of(list.tensors, list.tensors + list.count, [](const at::Tensor& gradient) {
    return gradient.scalar_type() == at::kHalf || gradient.scalar_type() == at::kBFloat16;
  });
}

}  // namespace

int64_t dimensions_among_last(Impl tensor, const Operand& dims, int64_t count) {
  return std::count_if(dims.sizes, dims.sizes + dims.count, [&](const c10::SymInt& dim) {
    const int64_t place = dim.expect_int();
    return (place < 0 ? place + tensor->dim() : place) >= tensor->dim() - count;
  });
}

bool convolution_passes(
    int64_t most, const c10::TensorImpl& input, const c10::TensorImpl& weight, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation) {
  if (input.dim() == 0 || input.dim() != weight.dim() || stride.empty() || padding.empty() || dilation.empty()) {
    return false;  // refused elsewhere
  }
  if (input.size(0) > most || weight.size(0) > most) {
    return true;
  }
  const auto option = [](c10::SymIntArrayRef values, size_t dimension) {  // one may stand for all
    return values[std::min(dimension, values.size() - 1)].expect_int();
  };
  for (int64_t i = 2; i < input.dim(); ++i) {
    const auto at = static_cast<size_t>(i - 2);
    const int64_t kernel = option(dilation, at) * (weight.size(i) - 1) + 1, step = option(stride, at);
    if (step > 0 && (input.size(i) + 2 * option(padding, at) - kernel) / step + 1 > most) {
      return true;
    }
  }
  return false;
}

const std::unordered_map<std::string, CheckKind>& checks() {
  static const std::vector<std::vector<const char*>> copy{{"self"}, {"src"}}, two{{"self"}, {"other"}},
      layer{{"input", "self"}, {"weight"}, {"output_mask"}}, attention{{"query"}, {"value"}, {"is_causal"}}, self{{"self", "input"}};
  static const auto the_checks = [] {
    std::unordered_map<std::string, CheckKind> made{
        {"narrowing_copy", {narrowing_copy, copy}},
        {"offset_copy", {offset_copy, copy}},
        {"gappy_copy", {gappy_copy, copy}},
        {"double_copy", {double_copy, copy}},
        {"cpu_scalar_view", {cpu_scalar_view, two}},
        {"integers", {integers, self}},
        {"bfloat16", {bfloat16, self}},
        {"complex", {is_complex, self}},
        {"int64_row", {int64_row, self}},
        {"strided_weight", {strided_weight, layer}},
        {"channel_slice", {channel_slice, layer}},
        {"wide_kernel", {wide_kernel, layer}},
        {"large_minibatch", {large_minibatch, layer}},
        {"large_output", {large_output, layer}},
        {"convolution_3d", {convolution_3d, layer}},
        {"strided_norm", {strided_norm, layer}},
        {"norm_without_input_gradient", {norm_without_input_gradient, layer}},
        {"mixed_layer_norm", {mixed_layer_norm, {{"input"}, {"weight"}, {"bias"}}}},
        {"mixed_layer_norm_backward", {mixed_layer_norm_backward, layer}},
        {"mixed_batch_norm", {mixed_batch_norm, {{"input"}, {"weight"}, {"bias"}, {"running_mean"}}}},
        {"lstm_dropout", {lstm_drops, layer}},
        {"lstm_dropout_backward", {lstm_dropout_backward, layer}},
        {"lstm_strided", {lstm_strided, layer}},
        {"uneven_windows", {uneven_windows, {{"self"}, {"output_size", "grad_output"}}}},
        {"value_width", {value_width, attention}},
        {"causal_half", {causal_half, attention}},
        {"outer_transform", {outer_transform, {{"self"}, {"dim"}}}},
        {"elements", {elements, {{"self", "input", "grad_output"}}}},
        {"cat_elements", {cat_elements, {{"tensors"}}}},
        {"fold_elements", {fold_elements, self}},
        {"bytes", {bytes, {}}},
        {"deterministic", {deterministic, {}}},
        {"half_gradients", {half_gradients, self}},
        {"grad_scaler", {grad_scaler, {{"grad_scale"}, {"found_inf"}}}},
    };
    add_path_checks(made);
    add_product_checks(made);
    add_value_checks(made);
    return made;
  }();
  return the_checks;
}

}  // namespace anymps::hazard_checks
