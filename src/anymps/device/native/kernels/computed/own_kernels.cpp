// Operators that have an MPS kernel and no CPU kernel of their own: computed on host tensors with what the CPU has.
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/redirect/unboxed.h"
#include "rules/rules.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_assert_async_ops.h>
#include <ATen/ops/_convert_weight_to_int4pack_ops.h>
#include <ATen/ops/_lstm_mps.h>
#include <ATen/ops/_mps_convolution_ops.h>
#include <ATen/ops/_mps_convolution_transpose_ops.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_attention_math_for_mps.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args_native.h>
#include <ATen/ops/_validate_sparse_coo_tensor_args_ops.h>
#include <ATen/ops/_weight_int4pack_mm_ops.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ldexp_ops.h>
#include <ATen/ops/linear_backward_ops.h>
#include <ATen/ops/linear_ops.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/mps_convolution_backward_ops.h>
#include <ATen/ops/mps_convolution_transpose_backward_ops.h>
#include <ATen/ops/scaled_dot_product_attention_native.h>
#include <ATen/ops/scaled_dot_product_attention_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <anymps/release.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <array>
#include <limits>
#include <optional>
#include <tuple>
#include <type_traits>
#include <vector>

namespace anymps {
namespace {

at::Tensor as_rows(const at::Tensor& tensor) {
  return tensor.dim() == 2 ? tensor : tensor.flatten(0, -2);  // -1 for the rows would not do where the columns are none
}

// From torch 2.13 on a kernel looks at the value, and nobody waits for it (Assert.metal in the macOS wheels).
template <class Op>
struct AssertAsync : HostKernel {
  static constexpr bool reads_memory = true;  // a kernel that stops a GPU must not run

  template <class... Message>  // one of the two has no words of its own
  static void call(const Rule& rule, const at::Tensor& self, Message... message) {
    if (self.numel() == 1 && !self.is_nonzero()) {
      delayed::note(Refusal::Index, rule, std::string(message...));
    } else {
      Op::redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), self, message...);
    }
  }
};

struct LinearBackward : HostKernel {
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> call(
      const at::Tensor& input, const at::Tensor& gradient, const at::Tensor& weight, std::array<bool, 3> wanted) {
    if (weight.dim() == 1) {  // a single row, whose result has no dimension of its own
      auto [to_input, to_weight, to_bias] = call(input, gradient.unsqueeze(-1), weight.unsqueeze(0), wanted);
      return {to_input, wanted[1] ? to_weight.squeeze(0) : to_weight, wanted[2] ? to_bias.squeeze(0) : to_bias};
    }
    const at::Tensor rows = gradient.dim() == 1 ? gradient.unsqueeze(0) : as_rows(gradient);
    at::Tensor to_input, to_weight, to_bias;
    if (wanted[0]) {
      to_input = rows.mm(weight).view(input.sizes());
    }
    if (wanted[1]) {
      to_weight = rows.t().mm(input.dim() == 1 ? input.unsqueeze(0) : as_rows(input));
    }
    if (wanted[2]) {
      to_bias = rows.sum(0);
    }
    return {to_input, to_weight, to_bias};
  }
};

struct AttentionMath : HostKernel {
  // The last argument, grouped queries, came after torch 2.11.
  template <class... Grouped>
  static std::tuple<at::Tensor, at::Tensor> call(
      const Rule& rule,
      const at::Tensor& query,
      const at::Tensor& key,
      const at::Tensor& value,
      const std::optional<at::Tensor>& mask,
      double dropout,
      bool causal,
      const std::optional<at::Tensor>& dropout_mask,
      std::optional<double> scale,
      Grouped... grouped) {
    if (C10_UNLIKELY(dropout != 0.0)) {
      refuse_limit(rule, "sdpa dropout", query);
    }
    if (C10_UNLIKELY(rule.offered)) {
      torch::jit::Stack stack;
      torch::jit::push(stack, query, key, value, mask, dropout, causal, dropout_mask, scale, grouped...);
      if (launch(rule, stack, {})) {
        return {stack[0].toTensor(), stack[1].toTensor()};
      }
    }
    return at::_scaled_dot_product_attention_math(query, key, value, mask, dropout, causal, dropout_mask, scale, grouped...);
  }
};

template <class... Args>
at::Tensor attention_for_mps(bool grouped, const Args&... args) {
  if constexpr (std::is_invocable_v<decltype(at::_scaled_dot_product_attention_math_for_mps)&, const Args&..., bool>) {
    return std::get<0>(at::_scaled_dot_product_attention_math_for_mps(args..., grouped));
  } else {
    return std::get<0>(
        grouped ? at::_scaled_dot_product_attention_math(args..., grouped) : at::_scaled_dot_product_attention_math_for_mps(args...));
  }
}

void check_attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const std::optional<at::Tensor>& mask) {
  // Texts of torch 2.13, aten/src/ATen/native/transformers/attention.cpp, the same on every device.
  TORCH_CHECK(
      query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type(),
      "Expected query, key, and value to have the same dtype, but got query.dtype: ", query.dtype(), " key.dtype: ", key.dtype(),
      " and value.dtype: ", value.dtype(), " instead.");
  TORCH_CHECK(
      query.device() == key.device() && query.device() == value.device(),
      "Expected query, key, and value to have the same device type, but got query.device: ", query.device(), " key.device: ",
      key.device(), " and value.device: ", value.device(), " instead.");
  TORCH_CHECK(
      query.dim() >= 2 && key.dim() >= 2 && value.dim() >= 2,
      "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: ", query.dim(), " key.dim: ", key.dim(),
      " and value.dim: ", value.dim(), " instead.");
  if (mask.has_value()) {
    const auto type = mask->scalar_type();
    TORCH_CHECK(
        type == c10::ScalarType::Bool || type == query.scalar_type() || type == c10::ScalarType::Float,
        "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: ", mask->dtype(),
        " and  query.dtype: ", query.dtype(), " instead.");
  }
}

// scaled_dot_product_attention is composite, and asks a table by device type that has no entry for mps off a Mac. This is
// its mps branch (torch 2.13): one operator where no gradient is asked for, the mathematics spelled out otherwise.
at::Tensor attention(
    const at::Tensor& query,
    const at::Tensor& key,
    const at::Tensor& value,
    const std::optional<at::Tensor>& given_mask,
    double dropout,
    bool causal,
    std::optional<double> scale,
    bool grouped) {
  check_attention(query, key, value, given_mask);
  if (!query.device().is_mps()) {  // under torch.vmap every device comes by here
    return at::native::scaled_dot_product_attention(query, key, value, given_mask, dropout, causal, scale, grouped);
  }
  std::optional<at::Tensor> mask = given_mask;
  if (mask.has_value() && mask->defined() && mask->scalar_type() == c10::ScalarType::Bool) {
    const auto options = query.options();
    mask = at::where(*mask, at::zeros({}, options), at::full({}, -std::numeric_limits<double>::infinity(), options));
  }
  const bool needs_gradient = c10::GradMode::is_enabled() && (query.requires_grad() || key.requires_grad() || value.requires_grad());
  if (dropout == 0.0 && !needs_gradient) {
    static const Rule* rule = find_rule(full_name<at::_ops::scaled_dot_product_attention>());
    if (rule->hazards != nullptr) {
      check_hazards(*rule, query, key, value, mask, dropout, causal);
    }
    return attention_for_mps(grouped, query, key, value, mask, dropout, causal, std::optional<at::Tensor>(), scale);
  }
  return std::get<0>(at::_scaled_dot_product_attention_math(query, key, value, mask, dropout, causal, std::nullopt, scale, grouped));
}

// lstm is composite, and leaves for `_lstm_mps` before it checks devices where MPS is built (torch 2.13, RNN.cpp).
std::tuple<at::Tensor, at::Tensor, at::Tensor> lstm(
    const at::Tensor& input,
    at::TensorList states,
    at::TensorList parameters,
    bool has_biases,
    int64_t layers,
    double dropout,
    bool train,
    bool bidirectional,
    bool batch_first) {
  TORCH_CHECK(states.size() == 2, "lstm expects two hidden states");
  static const Rule* rule = find_rule(full_name<at::_ops::lstm_input>());
  if (rule->hazards != nullptr) {
    check_hazards(*rule, input, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  if (!input.device().is_mps()) {
    return at::native::lstm(input, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  if (states[0].size(2) != states[1].size(2)) {  // a projection makes the hidden state narrower than the cell's
    refuse_limit(*rule, "lstm projections", states[0]);
  }
  auto [output, last, last_cell, gates, cells, between] =
      at::_lstm_mps(input, states, parameters, has_biases, layers, dropout, train, bidirectional, batch_first);
  return {output, last, last_cell};
}

// The check of a coalesced sparse tensor's indices flattens them, by a table that has no entry for mps off a Mac (MPS's is in
// FlattenIndices.mm): that part is asked of the host.
void validate_sparse(
    const at::Tensor& indices,
    const at::Tensor& values,
    at::IntArrayRef size,
    std::optional<bool> is_coalesced,
    std::optional<bool> check_pinning) {
  at::native::_validate_sparse_coo_tensor_args(indices, values, size, false, check_pinning);
  if (is_coalesced.value_or(false)) {
    at::_validate_sparse_coo_tensor_args(alias_if_mps(indices), alias_if_mps(values), size, true, false);
  }
}

// aten/src/ATen/native/mps/operations/Quantized.mm and the kernel weight_to_int4pack: the two halves of each byte change
// places, the rest lies as it lay. The shape says how much there is, not how it lies.
struct PackInt4 : HostKernel {
  static at::Tensor call(const Rule& rule, const at::Tensor& self, int64_t tiles) {
    static constexpr const char* name = "_convert_weight_to_int4pack_mps";
    TORCH_CHECK(self.dim() == 2, name, " : expect weight to be 2D tensor.");
    TORCH_CHECK(self.scalar_type() == at::kByte, name, " : expect weight to be kByte.");
    TORCH_CHECK(tiles == 2 || tiles == 4 || tiles == 8, name, " : innerKTiles need to be 2, 4, or 8, got ", tiles);
    if (std::optional<at::Tensor> result = launched(rule, self, tiles)) {
      return *std::move(result);
    }
    const int64_t rows = (self.size(0) + 7) / 8, columns = (2 * self.size(1) + 16 * tiles - 1) / (16 * tiles);
    const at::Tensor turned = at::bitwise_or(at::bitwise_left_shift(self, 4), at::bitwise_right_shift(self, 4)).flatten();
    at::Tensor bytes = at::zeros({rows * columns * 64 * tiles}, turned.options());
    bytes.narrow(0, 0, turned.numel()).copy_(turned);
    return bytes.view(at::kInt).view({rows, columns, 32, tiles / 2});
  }
};

// The kernel int4pack_mm: scales and zeros in the dtype of `self`, sums in float.
struct MultiplyInt4 : HostKernel {
  static at::Tensor call(
      const Rule& rule, const at::Tensor& self, const at::Tensor& packed, int64_t group, const at::Tensor& scales_and_zeros) {
    static constexpr const char* name = "_weight_int4pack_mm_mps";
    const auto type = self.scalar_type();
    TORCH_CHECK(
        type == at::kBFloat16 || type == at::kHalf || type == at::kFloat, name, " : expect A to be either 32-bit or 16-bit float tensor.");
    TORCH_CHECK(self.is_contiguous(), name, " : expect A to be contiguous.");
    TORCH_CHECK(self.dim() == 2, name, " : expect A to be 2D tensor.");
    TORCH_CHECK(packed.scalar_type() == at::kInt, name, " : expect B to be int32 tensor.");
    TORCH_CHECK(packed.is_contiguous(), name, " : expect B to be contiguous.");
    TORCH_CHECK(packed.dim() == 4, name, " : expect B to 4d tensor.");
    TORCH_CHECK(
        group == 32 || group == 64 || group == 128 || group == 256, name, ": expect qGroupSize to be 32, 64, 128 or 256, got ", group);
    const int64_t rows = packed.size(0) * 8, columns = self.size(1);
    TORCH_CHECK(
        scales_and_zeros.dim() == 3 && scales_and_zeros.size(1) == rows && scales_and_zeros.size(2) == 2,
        name,
        ": expect qScaleAndZeros to be 3d tensor with sizes [:, ",
        rows,
        ", 2]");
    if (std::optional<at::Tensor> result = launched(rule, self, packed, group, scales_and_zeros)) {
      return *std::move(result);
    }
    const at::Tensor bytes = packed.view(at::kByte).flatten().narrow(0, 0, rows * columns / 2);
    const at::Tensor numbers = at::stack({at::bitwise_and(bytes, 15), at::bitwise_right_shift(bytes, 4)}, -1).view({rows, columns});
    const at::Tensor scales = scales_and_zeros.select(2, 0);
    const at::Tensor zeros = scales_and_zeros.select(2, 1) - scales * 8;
    const auto of_each = [&](const at::Tensor& of_groups) {
      return of_groups.to(at::kFloat).repeat_interleave(group, 0).narrow(0, 0, columns).t();
    };
    return self.to(at::kFloat).mm((numbers.to(at::kFloat) * of_each(scales) + of_each(zeros)).t()).to(type);
  }
};

// aten/src/ATen/native/mps/operations/Convolution.mm; a convolution of mps tensors is another operator here.
struct Convolve : HostKernel {
  static at::Tensor call(
      const at::Tensor& self,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef dilation,
      c10::SymInt groups) {
    const std::vector<c10::SymInt> none(padding.size(), 0);
    return at::convolution_symint(self, weight, bias, stride, padding, dilation, false, none, std::move(groups));
  }
};

struct ConvolveTransposed : HostKernel {
  static at::Tensor call(
      const at::Tensor& self,
      const at::Tensor& weight,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef output_padding,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef dilation,
      c10::SymInt groups) {
    return at::convolution_symint(self, weight, {}, stride, padding, dilation, true, output_padding, std::move(groups));
  }
};

struct ConvolveBackward : HostKernel {
  static std::tuple<at::Tensor, at::Tensor, at::Tensor> call(
      const at::Tensor& self,
      const at::Tensor& gradient,
      const at::Tensor& weight,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef dilation,
      c10::SymInt groups,
      std::array<bool, 3> wanted) {
    const std::vector<c10::SymInt> none(padding.size(), 0);
    const std::vector<c10::SymInt> channels{gradient.sym_size(1)};
    return at::convolution_backward_symint(
        gradient, self, weight, at::OptionalSymIntArrayRef(channels), stride, padding, dilation, false, none, std::move(groups), wanted);
  }
};

struct ConvolveTransposedBackward : HostKernel {
  static std::tuple<at::Tensor, at::Tensor> call(
      const at::Tensor& self,
      const at::Tensor& gradient,
      const at::Tensor& weight,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef output_padding,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef dilation,
      c10::SymInt groups,
      std::array<bool, 2> wanted) {
    auto [to_self, to_weight, to_bias] = at::convolution_backward_symint(
        gradient, self, weight, {}, stride, padding, dilation, true, output_padding, std::move(groups), {wanted[0], wanted[1], false});
    return {to_self, to_weight};
  }
};

}  // namespace

void add_composite_kernels(CompositeTable& table) {
  table.push_back(
      {full_name<at::_ops::_validate_sparse_coo_tensor_args>(), c10::KernelFunction::makeFromUnboxedRuntimeFunction(&validate_sparse), {}});
  table.push_back(
      {full_name<at::_ops::lstm_input>(), c10::KernelFunction::makeFromUnboxedRuntimeFunction(&lstm), c10::KernelFunction()});
  table.push_back(
      {full_name<at::_ops::scaled_dot_product_attention>(),
       c10::KernelFunction::makeFromUnboxedRuntimeFunction(&attention),
       c10::KernelFunction::makeFromUnboxedRuntimeFunction(&attention)});
}

void add_own_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  add_unboxed<ops::linear>(table);  // composite on the CPU, one operator on mps
  add_unboxed<ops::linear_backward, LinearBackward>(table);
  add_unboxed<ops::_assert_async, AssertAsync<ops::_assert_async>>(table);
  add_unboxed<ops::_assert_async_msg, AssertAsync<ops::_assert_async_msg>>(table);
  add_unboxed<ops::_scaled_dot_product_attention_math_for_mps, AttentionMath>(table);
  // Composite, and asks a table by device type that has no entry for mps off a Mac (from torch 2.13 on).
  add_unboxed<ops::ldexp_Tensor>(table);
  add_unboxed<ops::ldexp_>(table);
  add_unboxed<ops::ldexp_out>(table);
  if constexpr (release::conj_physical_in_place) {
    add_unboxed<ops::conj_physical_>(table);
  }
  // Registered for MPS, and without a kernel of their name elsewhere.
  add_unboxed<ops::_convert_weight_to_int4pack, PackInt4>(table);
  add_unboxed<ops::_weight_int4pack_mm, MultiplyInt4>(table);
  add_unboxed<ops::_mps_convolution, Convolve>(table);
  add_unboxed<ops::_mps_convolution_transpose, ConvolveTransposed>(table);
  add_unboxed<ops::mps_convolution_backward, ConvolveBackward>(table);
  add_unboxed<ops::mps_convolution_transpose_backward, ConvolveTransposedBackward>(table);
}

}  // namespace anymps
