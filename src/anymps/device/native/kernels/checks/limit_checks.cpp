// Looks at the arguments of boxed calls, for operators that refuse some of them on mps that the CPU takes.
//
// Conditions: torch 2.13, FusedAdamKernel.mm, FusedSgdKernel.mm, GridSampler.mm, LinearAlgebra.mm, ScatterGather.mm and
// TensorConversions.cpp; texts and their releases: OPERATOR_LIMITS in anymps/rules/_limits.py.
#include "device/device.h"
#include "kernels/redirect/unboxed.h"
#include "kernels/kernels.h"
#include "recorder/recorder.h"

#include <ATen/native/ForeachUtils.h>
#include <ATen/ops/_to_sparse_bsc_ops.h>
#include <ATen/ops/_to_sparse_bsr_ops.h>
#include <ATen/ops/_to_sparse_csc_ops.h>
#include <ATen/ops/_to_sparse_csr_ops.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/masked_fill.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <initializer_list>

namespace anymps {
namespace {

const c10::IValue& argument(const Rule& rule, c10::ArrayRef<c10::IValue> values, const char* name) {
  const auto& arguments = rule.op.schema().arguments();
  for (size_t i = 0; i < values.size(); ++i) {
    if (arguments[i].name() == name) {
      return values[i];
    }
  }
  TORCH_INTERNAL_ASSERT(false, "anymps: ", rule.name, " has no argument ", name);
}

// Metal has no atomic product of int64 (torch 2.13, torch/testing/_internal/common_mps.py); up to 2.12 the product is
// MPSGraph's, and the extremes of int64 are refused (scatter_reduce_two_mps_kernel in the macOS wheels).
void check_scatter_reduce(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor& self = values[0].toTensor();
  if (self.scalar_type() != c10::ScalarType::Long) {
    return;
  }
  const auto reduce = argument(rule, values, "reduce").toStringView();
  if (reduce == "prod") {
    refuse_limit(rule, "scatter product int64", self);
  } else if (reduce == "amax" || reduce == "amin") {
    refuse_limit(rule, "scatter extreme int64", self);
  }
}

// Written in place, the matrix is not expanded: it has to fit.
void check_addr_shapes(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor& self = values[0].toTensor();
  const at::Tensor& rows = argument(rule, values, "vec1").toTensor();
  const at::Tensor& columns = argument(rule, values, "vec2").toTensor();
  if (rows.dim() != 1 || columns.dim() != 1) {
    refuse_limit(rule, "addr vectors", rows.dim() != 1 ? rows : columns);
  }
  if (!values.back().isTensor() || !values.back().toTensor().is_same(self)) {
    return;
  }
  if (self.dim() != 2) {
    refuse_limit(rule, "addr matrix", self);
  }
  if (self.size(0) != rows.size(0)) {
    refuse_limit(rule, "addr rows", rows);
  }
  if (self.size(1) != columns.size(0)) {
    refuse_limit(rule, "addr columns", columns);
  }
}

// The factors are read as doubles (addr_out_mps in the macOS wheels), which a number with an imaginary part is not.
void check_addr(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  check_addr_shapes(rule, values);
  for (const char* name : {"beta", "alpha"}) {
    const c10::Scalar factor = argument(rule, values, name).toScalar();
    if (factor.isComplex()) {
      factor.toDouble();  // raises: value cannot be converted to type double without overflow
    }
  }
}

// Up to torch 2.11 the Metal library has these kernels for real numbers alone, one for the last dimension and one for others.
void check_logcumsumexp(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor& self = values[0].toTensor();
  if (self.scalar_type() == c10::ScalarType::ComplexFloat && self.numel() != 0) {
    const int64_t dim = argument(rule, values, "dim").toInt();
    const bool is_last = dim == -1 || dim + 1 >= self.dim();
    refuse_limit(rule, is_last ? "logcumsumexp innermost complex" : "logcumsumexp outer complex", self);
  }
}

void check_lu_factor(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  if (!argument(rule, values, "pivot").toBool()) {
    refuse_limit(rule, "lu_factor pivot", values[0].toTensor());
  }
}

void check_batched_product(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor& batch = argument(rule, values, "batch1").toTensor();
  const auto type = batch.scalar_type();
  const bool known = type == c10::ScalarType::Float || type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16 ||
      type == c10::ScalarType::ComplexFloat || type == c10::ScalarType::ComplexHalf || c10::isIntegralType(type, /*includeBool=*/true);
  if (!known) {
    refuse_limit(rule, "addbmm", batch);
  }
}

template <bool backward>
void check_grid_sampler_3d(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  constexpr int64_t nearest = 1, bicubic = 2;
  const int64_t mode = argument(rule, values, "interpolation_mode").toInt();
  if (mode == nearest && !backward) {
    refuse_limit(rule, "grid_sampler_3d nearest", values[0].toTensor());
  } else if (mode == bicubic) {
    refuse_limit(rule, backward ? "grid_sampler_3d backward" : "grid_sampler_3d", values[0].toTensor());
  }
}

// A compressed layout is made by the operator of that layout, which MPS lacks (torch 2.13, TensorConversions.cpp).
void check_to_sparse(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  namespace ops = at::_ops;
  const c10::IValue& layout = argument(rule, values, "layout");
  if (layout.isNone()) {
    return;
  }
  const at::Tensor& self = values[0].toTensor();
  const auto dense = argument(rule, values, "dense_dim").toOptional<int64_t>();
  const c10::IValue& block = argument(rule, values, "blocksize");
  const std::vector<int64_t> blocksize = block.isNone() ? std::vector<int64_t>() : block.toIntVector();
  switch (layout.toLayout()) {
    case c10::Layout::SparseCsr: ops::_to_sparse_csr::call(self, dense); break;
    case c10::Layout::SparseCsc: ops::_to_sparse_csc::call(self, dense); break;
    case c10::Layout::SparseBsr: ops::_to_sparse_bsr::call(self, blocksize, dense); break;
    case c10::Layout::SparseBsc: ops::_to_sparse_bsc::call(self, blocksize, dense); break;
    default: break;
  }
}

// The fused kernels walk their lists element by element, so that all tensors of a parameter must lie alike and fill their
// memory; the CPU's kernels write past a parameter that does not.
void check_fused_lists(const Rule& rule, c10::ArrayRef<c10::IValue> values, std::initializer_list<const char*> names, const char* limit) {
  std::vector<std::vector<at::Tensor>> lists;
  for (const char* name : names) {
    lists.push_back(argument(rule, values, name).toTensorVector());
  }
  if (lists[0].empty()) {
    return;
  }
  std::vector<at::TensorList> views;
  for (const std::vector<at::Tensor>& list : lists) {
    if (list.size() != lists[0].size()) {
      return;  // refused elsewhere
    }
    views.emplace_back(list);
  }
  if (!at::native::check_fast_path_restrictions(views)) {
    refuse_limit(rule, limit, lists[0][0]);
  }
}

void check_fused_adam(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  if (argument(rule, values, "amsgrad").toBool()) {
    check_fused_lists(rule, values, {"self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"}, "fused adam amsgrad");
  } else {
    check_fused_lists(rule, values, {"self", "grads", "exp_avgs", "exp_avg_sqs"}, "fused adam");
  }
}

void check_fused_sgd(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  if (argument(rule, values, "momentum_buffer_list").toTensorVector().empty()) {
    check_fused_lists(rule, values, {"self", "grads"}, "fused sgd");
  } else {
    check_fused_lists(rule, values, {"self", "grads", "momentum_buffer_list"}, "fused sgd momentum");
  }
}

// Up to torch 2.14 the MPS kernels give the variance of complex numbers a complex dtype, which autograd refuses (the
// comments beside `var` and `std` in common_methods_invocations.py). Without a gradient the result is right here, in its
// real dtype.
void check_complex_variance(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const at::Tensor& self = values[0].toTensor();
  if (self.is_complex() && self.requires_grad() && c10::GradMode::is_enabled()) {
    const std::string name = rule.name.substr(6, rule.name.find('.') - 6);  // between "aten::" and ".correction"
    refuse_limit(rule, (name + " complex gradient").c_str(), self);
  }
}

}  // namespace

std::unordered_map<std::string, ArgumentCheck> limit_checks() {
  return {
      {"aten::scatter_reduce.two", &check_scatter_reduce},
      {"aten::scatter_reduce.two_out", &check_scatter_reduce},
      {"aten::scatter_reduce_.two", &check_scatter_reduce},
      {"aten::_logcumsumexp", &check_logcumsumexp},
      {"aten::_logcumsumexp.out", &check_logcumsumexp},
      {"aten::linalg_lu_factor_ex", &check_lu_factor},
      {"aten::linalg_lu_factor_ex.out", &check_lu_factor},
      {"aten::addr", &check_addr},
      {"aten::addr.out", &check_addr},
      {"aten::addbmm", &check_batched_product},
      {"aten::addbmm.out", &check_batched_product},
      {"aten::baddbmm", &check_batched_product},
      {"aten::baddbmm.out", &check_batched_product},
      {"aten::_fused_adam_", &check_fused_adam},
      {"aten::_fused_adam_.tensor_lr", &check_fused_adam},
      {"aten::_fused_adamw_", &check_fused_adam},
      {"aten::_fused_adamw_.tensor_lr", &check_fused_adam},
      {"aten::_fused_sgd_", &check_fused_sgd},
      {"aten::_fused_sgd_.tensor_lr", &check_fused_sgd},
      {"aten::_to_sparse", &check_to_sparse},
      {"aten::grid_sampler_3d", &check_grid_sampler_3d<false>},
      {"aten::grid_sampler_3d_backward", &check_grid_sampler_3d<true>},
      {"aten::std.correction", &check_complex_variance},
      {"aten::std_mean.correction", &check_complex_variance},
      {"aten::var.correction", &check_complex_variance},
      {"aten::var_mean.correction", &check_complex_variance},
  };
}

// Integers divided by zero: MPS goes on where the CPU's kernels raise ZeroDivisionError.
//
// Metal Shading Language Specification, 3.1: division of an integer by zero "does not cause an exception but results in an
// unspecified value". Here it is the value of a division by one.
namespace {

bool is_whole(const c10::IValue& value) {
  return value.isTensor() ? value.toTensor().defined() && c10::isIntegralType(value.toTensor().scalar_type(), /*includeBool=*/true)
                          : value.isScalar() && value.toScalar().isIntegral(/*includeBool=*/true);
}

// The arguments are `self`, `other`, and for `div` a rounding mode: without one the quotient is a float.
void settle_zero_divisors(const Rule& rule, std::vector<c10::IValue>& stack, size_t first) {
  c10::IValue& divisor = stack[first + 1];
  const bool is_true_division = stack.size() > first + 2 && stack[first + 2].isNone();
  if (is_true_division || !is_whole(stack[first]) || !is_whole(divisor) || !divisor.isTensor()) {
    return;
  }
  const at::Tensor& other = divisor.toTensor();
  const at::Tensor is_zero = at::eq(other, 0);
  if (!is_zero.any().item<bool>()) {
    return;
  }
  if (const HazardRow* row = hazard_named("zero_divisors")) {
    note_fault(*row, rule.name);
  }
  at::Tensor settled = at::masked_fill(other, is_zero, 1);
  if (other.unsafeGetTensorImpl()->is_wrapped_number()) {  // a number of Python's: the result keeps the other's dtype
    settled.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  divisor = std::move(settled);
}

}  // namespace

std::unordered_map<std::string, ArgumentChange> argument_changes() {
  std::unordered_map<std::string, ArgumentChange> changes;
  for (const char* name :
       {"div.Tensor_mode", "div.out_mode", "div_.Tensor_mode", "floor_divide", "floor_divide.out", "floor_divide_.Tensor",
        "fmod.Tensor", "fmod.Tensor_out", "fmod_.Tensor", "remainder.Scalar_Tensor", "remainder.Tensor", "remainder.Tensor_out",
        "remainder_.Tensor"}) {
    changes.emplace(std::string("aten::") + name, &settle_zero_divisors);
  }
  return changes;
}

}  // namespace anymps
