// Operators that refuse some arguments on mps that the CPU takes, by more than the dtype of the first tensor.
//
// Texts and conditions: torch 2.13, AdaptivePooling.mm and Convolution.mm; the comments that quote them beside the marks in
// torch/testing/_internal/common_methods_invocations.py.
#include "unboxed.h"

#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/scatter_reduce_ops.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

namespace anymps {
namespace {

const c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

struct AdaptiveAveragePool {
  static at::Tensor call(const at::Tensor& self, c10::SymIntArrayRef output) {
    if (self.dim() >= 3 && output.size() == 2) {
      const int64_t in[2] = {self.size(-2), self.size(-1)};
      const int64_t out[2] = {output[0].expect_int(), output[1].expect_int()};
      const bool shrinks = in[0] >= out[0] && in[1] >= out[1];
      for (int i = 0; i < 2; ++i) {
        const int64_t larger = shrinks ? in[i] : out[i], smaller = shrinks ? out[i] : in[i];
        TORCH_CHECK(
            smaller == 0 || larger % smaller == 0, "Adaptive pool MPS: ", shrinks ? "input" : "output",
            " sizes must be divisible by ", shrinks ? "output" : "input",
            " sizes. Non-divisible input sizes are not implemented on MPS device yet. For now, you can manually transfer tensor to "
            "cpu in this case. Please refer to [this issue](https://github.com/pytorch/pytorch/issues/96056)");
      }
    }
    return at::_ops::_adaptive_avg_pool2d::redispatch(kCpu, self, output);
  }
};

struct Convolution {
  static at::Tensor call(
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef dilation,
      bool transposed,
      c10::SymIntArrayRef output_padding,
      c10::SymInt groups) {
    const auto type = input.scalar_type();
    TORCH_CHECK(
        !(transposed && weight.dim() == 5 && (type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16)),
        "ConvTranspose 3D with BF16 or FP16 types is not supported on MPS");
    return at::_ops::convolution::redispatch(
        kCpu, input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
  }
};

// Up to torch 2.14 the factors are read as doubles, which a complex number with an imaginary part is not.
struct Addmm {
  static at::Tensor call(
      const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const c10::Scalar& beta, const c10::Scalar& alpha) {
    if (C10_UNLIKELY(TORCH_VERSION_MINOR < 15 && (alpha.isComplex() || beta.isComplex()))) {
      alpha.toDouble();  // raises: value cannot be converted to type double without overflow
      beta.toDouble();
    }
    return at::_ops::addmm::redispatch(kCpu, self, mat1, mat2, beta, alpha);
  }
};

// Up to torch 2.13 the bounds are read as the result's type, which for uint8 a negative number is not.
struct Arange {
  static at::Tensor& call(const c10::Scalar& start, const c10::Scalar& end, const c10::Scalar& step, at::Tensor& out) {
    if (TORCH_VERSION_MINOR < 14 && out.scalar_type() == c10::ScalarType::Byte) {
      start.toByte();  // raises: value cannot be converted to type uint8_t without overflow
      step.toByte();
    }
    return at::_ops::arange_start_out::redispatch(kCpu, start, end, step, out);
  }
};

// Metal has no atomic product of int64 (torch 2.13, torch/testing/_internal/common_mps.py).
void check_scatter(const at::Tensor& self, c10::string_view reduce) {
  TORCH_CHECK(
      TORCH_VERSION_MINOR < 13 ||  // MPSGraph's scatter takes it
          !(reduce == "prod" && self.scalar_type() == c10::ScalarType::Long),
      "Failed to create function state object for: scatter_prod_dense_long_long");
}

struct ScatterReduce {
  static at::Tensor call(
      const at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, c10::string_view reduce, bool with_self) {
    check_scatter(self, reduce);
    return at::_ops::scatter_reduce_two::redispatch(kCpu, self, dim, index, source, reduce, with_self);
  }
};

struct ScatterReduceInPlace {
  static at::Tensor& call(
      at::Tensor& self, int64_t dim, const at::Tensor& index, const at::Tensor& source, c10::string_view reduce, bool with_self) {
    check_scatter(self, reduce);
    return at::_ops::scatter_reduce__two::redispatch(kCpu, self, dim, index, source, reduce, with_self);
  }
};

struct MaskedScatter {
  static at::Tensor& call(at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
    const auto type = mask.scalar_type();
    TORCH_CHECK(
        type == c10::ScalarType::Bool || type == c10::ScalarType::Byte, "masked_scatter: expected BoolTensor or ByteTensor for mask");
    return at::_ops::masked_scatter_::redispatch(kCpu, self, mask, source);
  }
};

}  // namespace

void add_limited_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  table.add<ops::_adaptive_avg_pool2d, AdaptiveAveragePool>();
  table.add<ops::convolution, Convolution>();
  table.add<ops::addmm, Addmm>();
  table.add<ops::arange_start_out, Arange>();
  table.add<ops::masked_scatter_, MaskedScatter>();
  table.add<ops::scatter_reduce_two, ScatterReduce>();
  table.add<ops::scatter_reduce__two, ScatterReduceInPlace>();
}

}  // namespace anymps
