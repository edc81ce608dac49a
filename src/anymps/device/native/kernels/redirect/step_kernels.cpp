// Typed kernels for the operators that make up most training steps; every other operator takes the boxed redirect.
#include "kernels/checks/direct_calls.h"
#include "kernels/redirect/kernel_table.h"
#include "kernels/redirect/unboxed.h"

#include <ATen/ops/_log_softmax_backward_data_ops.h>
#include <ATen/ops/_log_softmax_ops.h>
#include <ATen/ops/_softmax_backward_data_ops.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addcdiv_ops.h>
#include <ATen/ops/addcmul_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/cat_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/div_ops.h>
#include <ATen/ops/embedding_dense_backward_ops.h>
#include <ATen/ops/eq_ops.h>
#include <ATen/ops/exp_ops.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/gelu_backward_ops.h>
#include <ATen/ops/gelu_ops.h>
#include <ATen/ops/index_select_ops.h>
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/native_group_norm_backward_ops.h>
#include <ATen/ops/native_group_norm_ops.h>
#include <ATen/ops/native_layer_norm_backward_ops.h>
#include <ATen/ops/native_layer_norm_ops.h>
#include <ATen/ops/neg_ops.h>
#include <ATen/ops/nll_loss_backward_ops.h>
#include <ATen/ops/nll_loss_forward_ops.h>
#include <ATen/ops/pow_ops.h>
#include <ATen/ops/reciprocal_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/rsqrt_ops.h>
#include <ATen/ops/sigmoid_backward_ops.h>
#include <ATen/ops/sigmoid_ops.h>
#include <ATen/ops/silu_backward_ops.h>
#include <ATen/ops/silu_ops.h>
#include <ATen/ops/sqrt_ops.h>
#include <ATen/ops/sub_ops.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/tanh_backward_ops.h>
#include <ATen/ops/tanh_ops.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/where_ops.h>
#include <ATen/ops/zero_ops.h>

namespace anymps {

void add_step_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  add_unboxed<ops::add_Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::add__Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::sub_Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::mul_Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::mul__Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::div_Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::div__Tensor, OnCpuWithNumber>(table);
  add_unboxed<ops::addcmul_>(table);
  add_unboxed<ops::addcdiv_>(table);
  add_unboxed<ops::lerp__Scalar>(table);
  add_unboxed<ops::sqrt>(table);
  add_unboxed<ops::rsqrt>(table);
  add_unboxed<ops::reciprocal>(table);
  add_unboxed<ops::neg>(table);
  add_unboxed<ops::exp>(table);
  add_unboxed<ops::pow_Tensor_Scalar>(table);
  add_unboxed<ops::tanh>(table);
  add_unboxed<ops::tanh_backward>(table);
  add_unboxed<ops::sigmoid>(table);
  add_unboxed<ops::sigmoid_backward>(table);
  add_unboxed<ops::silu>(table);
  add_unboxed<ops::silu_backward>(table);
  add_unboxed<ops::relu>(table);
  add_unboxed<ops::threshold_backward>(table);
  add_unboxed<ops::gelu>(table);
  add_unboxed<ops::gelu_backward>(table);
  add_unboxed<ops::mm>(table);
  add_unboxed<ops::bmm>(table);
  add_unboxed<ops::sum_dim_IntList>(table);
  add_unboxed<ops::mean_dim>(table);
  add_unboxed<ops::_softmax_backward_data>(table);
  add_unboxed<ops::_log_softmax>(table);
  add_unboxed<ops::_log_softmax_backward_data>(table);
  add_unboxed<ops::nll_loss_forward, OnCpuLookedAt<direct_calls::Loss>>(table);
  add_unboxed<ops::nll_loss_backward, OnCpuLookedAt<direct_calls::LossBackward>>(table);
  add_unboxed<ops::native_layer_norm>(table);
  add_unboxed<ops::native_layer_norm_backward>(table);
  add_unboxed<ops::native_group_norm>(table);
  add_unboxed<ops::native_group_norm_backward>(table);
  add_unboxed<ops::native_batch_norm, OnCpuLookedAt<direct_calls::BatchNorm>>(table);
  add_unboxed<ops::native_batch_norm_backward>(table);
  add_unboxed<ops::convolution_backward>(table);
  add_unboxed<ops::embedding_dense_backward, OnCpuLookedAt<direct_calls::EmbeddingBackward>>(table);
  if (!substrate().computes_at_once()) {  // elsewhere the redirect looks at indices
    add_unboxed<ops::index_select, OnCpuLookedAt<direct_calls::IndexSelect>>(table);
  }
  add_unboxed<ops::masked_fill__Scalar>(table);
  add_unboxed<ops::where_self>(table);
  add_unboxed<ops::eq_Scalar>(table);
  add_unboxed<ops::eq_Tensor>(table);
  add_unboxed<ops::cat>(table);
  add_unboxed<ops::fill__Scalar>(table);
  add_unboxed<ops::zero_>(table);
}

}  // namespace anymps
