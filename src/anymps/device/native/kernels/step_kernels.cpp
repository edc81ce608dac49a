// Typed kernels for the operators that make up most training steps; every other operator takes the boxed redirect.
#include "kernels/unboxed.h"

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
#include <ATen/ops/lerp_ops.h>
#include <ATen/ops/masked_fill_ops.h>
#include <ATen/ops/mean_ops.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/native_batch_norm_backward_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
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
  table.add<ops::add_Tensor>();
  table.add<ops::add__Tensor>();
  table.add<ops::sub_Tensor>();
  table.add<ops::mul_Tensor>();
  table.add<ops::mul__Tensor>();
  table.add<ops::div_Tensor>();
  table.add<ops::div__Tensor>();
  table.add<ops::addcmul_>();
  table.add<ops::addcdiv_>();
  table.add<ops::lerp__Scalar>();
  table.add<ops::sqrt>();
  table.add<ops::rsqrt>();
  table.add<ops::reciprocal>();
  table.add<ops::neg>();
  table.add<ops::exp>();
  table.add<ops::pow_Tensor_Scalar>();
  table.add<ops::tanh>();
  table.add<ops::tanh_backward>();
  table.add<ops::sigmoid>();
  table.add<ops::sigmoid_backward>();
  table.add<ops::silu>();
  table.add<ops::relu>();
  table.add<ops::threshold_backward>();
  table.add<ops::gelu>();
  table.add<ops::gelu_backward>();
  table.add<ops::mm>();
  table.add<ops::bmm>();
  table.add<ops::sum_dim_IntList>();
  table.add<ops::mean_dim>();
  table.add<ops::_softmax_backward_data>();
  table.add<ops::_log_softmax>();
  table.add<ops::_log_softmax_backward_data>();
  table.add<ops::nll_loss_forward>();
  table.add<ops::nll_loss_backward>();
  table.add<ops::native_layer_norm>();
  table.add<ops::native_layer_norm_backward>();
  table.add<ops::native_batch_norm>();
  table.add<ops::native_batch_norm_backward>();
  table.add<ops::convolution_backward>();
  table.add<ops::embedding_dense_backward>();
  table.add<ops::masked_fill__Scalar>();
  table.add<ops::where_self>();
  table.add<ops::eq_Scalar>();
  table.add<ops::eq_Tensor>();
  table.add<ops::cat>();
  table.add<ops::fill__Scalar>();
  table.add<ops::zero_>();
}

}  // namespace anymps
