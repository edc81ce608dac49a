// Operators that refuse some arguments on mps that the CPU takes, by more than the dtype of the first tensor.
//
// Conditions: torch 2.13, AdaptivePooling.mm, Convolution.mm, GridSampler.mm, LinearAlgebra.mm, RnnOps.mm and SoftMax.mm;
// the comments that quote them beside the marks in torch/testing/_internal/common_methods_invocations.py. Texts that are
// the same for every call, with their releases: OPERATOR_LIMITS in anymps/rules/_limits.py.
#include "device/device.h"
#include "kernels/kernels.h"
#include "kernels/redirect/unboxed.h"

#include <ATen/TracerMode.h>
#include <ATen/ops/_adaptive_avg_pool2d_ops.h>
#include <ATen/ops/_convolution_ops.h>
#include <ATen/ops/_softmax_ops.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/arange_ops.h>
#include <ATen/ops/bincount_ops.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/kaiser_window_native.h>
#include <ATen/ops/kaiser_window_ops.h>
#include <ATen/ops/masked_scatter_ops.h>
#include <ATen/ops/slow_conv3d_forward.h>
#include <ATen/ops/slow_conv_dilated2d.h>
#include <ATen/ops/slow_conv_dilated3d.h>
#include <ATen/ops/slow_conv_transpose2d.h>
#include <ATen/ops/slow_conv_transpose3d.h>
#include <anymps/release.h>

#include <algorithm>

namespace anymps {
namespace {

// Where the kernels lie that compute on `tensor`.
c10::DispatchKeySet key_of(const at::Tensor& tensor) {
  return c10::DispatchKeySet(
      tensor.is_meta() ? c10::DispatchKey::Meta : (tensor.is_cuda() ? c10::DispatchKey::CUDA : c10::DispatchKey::CPU));
}

struct AdaptiveAveragePool : HostKernel {
  static at::Tensor call(const Rule& rule, const at::Tensor& self, c10::SymIntArrayRef output) {
    if (self.dim() >= 3 && output.size() == 2) {
      const int64_t in[2] = {self.size(-2), self.size(-1)};
      const int64_t out[2] = {output[0].expect_int(), output[1].expect_int()};
      const bool shrinks = in[0] >= out[0] && in[1] >= out[1];
      for (int i = 0; i < 2; ++i) {
        const int64_t larger = shrinks ? in[i] : out[i], smaller = shrinks ? out[i] : in[i];
        if (smaller != 0 && larger % smaller != 0) {
          refuse_limit(rule, shrinks ? "adaptive pool input" : "adaptive pool output", self);
        }
      }
    }
    return at::_ops::_adaptive_avg_pool2d::redispatch(key_of(self), self, output);
  }
};

// The CPU's kernels give channels_last where the input or the weight is laid out so (torch 2.13, Convolution.cpp), the meta
// kernel not always; what a later `contiguous()` allocates depends on it.
at::Tensor in_order_of(const at::Tensor& result, const at::Tensor& input, const at::Tensor& weight) {
  const auto last = result.dim() == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  const bool wanted = result.dim() >= 4 && (input.suggest_memory_format() == last || weight.suggest_memory_format() == last);
  return wanted && !result.is_contiguous(last) ? at::empty(result.sizes(), result.options(), last) : result;
}

struct Convolution : HostKernel {
  static at::Tensor call(
      const Rule& rule,
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
    if (C10_UNLIKELY(
            transposed && weight.dim() == 5 && (type == c10::ScalarType::Half || type == c10::ScalarType::BFloat16))) {
      refuse_limit(rule, "conv_transpose3d half", input);
    }
    // Before macOS 15.1 no dimension of the result may pass 65536 (pytorch issue 129207), whatever the text says.
    constexpr int64_t most = int64_t{1} << 16;
    if (C10_UNLIKELY(!is_macos_at_least(15, 1)) && !transposed && weight.dim() > 2 &&
        hazard_checks::convolution_passes(
            most, *input.unsafeGetTensorImpl(), *weight.unsafeGetTensorImpl(), stride, padding, dilation)) {
      refuse_limit(rule, "convolution size", input);
    }
    const at::Tensor result = at::_ops::convolution::redispatch(
        key_of(input), input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
    return result.is_meta() ? in_order_of(result, input, weight) : result;
  }
};

at::Tensor slow_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::IntArrayRef stride,
    c10::IntArrayRef padding,
    c10::IntArrayRef dilation,
    bool dilated,
    bool transposed,
    c10::IntArrayRef output_padding) {
  const at::IntArrayRef kernel = weight.sizes().slice(2);
  if (transposed) {
    return kernel.size() == 2 ? at::slow_conv_transpose2d(input, weight, kernel, bias, stride, padding, output_padding, dilation)
                              : at::slow_conv_transpose3d(input, weight, kernel, bias, stride, padding, output_padding, dilation);
  }
  if (kernel.size() == 2) {
    return at::slow_conv_dilated2d(input, weight, kernel, bias, stride, padding, dilation);
  }
  return dilated ? at::slow_conv_dilated3d(input, weight, kernel, bias, stride, padding, dilation)
                 : at::slow_conv3d_forward(input, weight, kernel, bias, stride, padding);
}

// An input on the CPU chooses the CPU's slow path, whose operators then meet weights on mps: the one of plain 2d
// convolutions has a text of its own (texts.cpp), the others have no kernel (torch 2.13, Convolution.cpp; pytorch issue
// 117949). An input on mps wants parameters of its own type.
class ConvolutionKernel final : public c10::OperatorKernel {
 public:
  explicit ConvolutionKernel(const Rule& rule) : rule_(rule), on_mps_(rule) {}

  at::Tensor operator()(
      const at::Tensor& input,
      const at::Tensor& weight,
      const std::optional<at::Tensor>& bias,
      c10::SymIntArrayRef stride,
      c10::SymIntArrayRef padding,
      c10::SymIntArrayRef dilation,
      bool transposed,
      c10::SymIntArrayRef output_padding,
      c10::SymInt groups) {
    if (C10_UNLIKELY(at::tracer::impl::is_dispatch_enabled())) {  // torch.jit.trace writes down what this one is made of
      return at::_ops::convolution::redispatch(
          c10::DispatchKeySet(c10::DispatchKey::CPU), input, weight, bias, stride, padding, dilation, transposed, output_padding,
          std::move(groups));
    }
    if (C10_UNLIKELY(input.is_cpu())) {
      const bool dilated = std::any_of(dilation.begin(), dilation.end(), [](const c10::SymInt& it) { return it != 1; });
      if (weight.dim() == 5 || (weight.dim() == 4 && (transposed || dilated))) {
        return by_group(
            input, weight, bias, groups.expect_int(), C10_AS_INTARRAYREF_SLOW(stride), C10_AS_INTARRAYREF_SLOW(padding),
            C10_AS_INTARRAYREF_SLOW(dilation), dilated, transposed, C10_AS_INTARRAYREF_SLOW(output_padding));
      }
    }
    check_type(input, weight, "weight");
    if (bias.has_value() && bias->defined()) {
      check_type(input, *bias, "bias");
    }
    return on_mps_(input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
  }

 private:
  void check_type(const at::Tensor& input, const at::Tensor& parameter, const char* name) const {
    if (C10_UNLIKELY(input.is_mps() && !input.options().type_equal(parameter.options()))) {
      refuse(
          parameter.is_mps() ? Refusal::Dtype : Refusal::Device, rule_, ErrorClass::Runtime,
          "Input type (" + input.toString() + ") and " + name + " type (" + parameter.toString() + ") should be the same", parameter);
    }
  }

  template <class... Rest>
  static at::Tensor by_group(
      const at::Tensor& input, const at::Tensor& weight, const std::optional<at::Tensor>& bias, int64_t groups, const Rest&... rest) {
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < groups; ++i) {
      const bool with_bias = bias.has_value() && bias->defined();
      parts.push_back(slow_convolution(
          input.chunk(groups, 1)[i], weight.chunk(groups, 0)[i],
          with_bias ? std::optional<at::Tensor>(bias->chunk(groups, 0)[i]) : std::nullopt, rest...));
    }
    return groups == 1 ? parts[0] : at::cat(parts, 1);
  }

  const Rule& rule_;
  Unboxed<at::_ops::convolution::schema, Convolution> on_mps_;
};

// What a traced convolution calls: the same, and flags of CUDA.
at::Tensor traced_convolution(
    const at::Tensor& input,
    const at::Tensor& weight,
    const std::optional<at::Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    bool,
    bool,
    bool,
    bool) {
  return at::_ops::convolution::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::MPS), input, weight, bias, stride, padding, dilation, transposed, output_padding,
      std::move(groups));
}

// Up to torch 2.14 the factors are read as doubles, which a complex number with an imaginary part is not.
struct Addmm : HostKernel {
  static at::Tensor call(
      const at::Tensor& self,
      const at::Tensor& mat1,
      const at::Tensor& mat2,
      const c10::Scalar& beta,
      const c10::Scalar& alpha) {
    if (C10_UNLIKELY(!release::complex_addmm_scalars && (alpha.isComplex() || beta.isComplex()))) {
      alpha.toDouble();  // raises: value cannot be converted to type double without overflow
      beta.toDouble();
    }
    return at::_ops::addmm::redispatch(key_of(self), self, mat1, mat2, beta, alpha);
  }
};

// Where the bounds are read as the result's type, a negative number is none for uint8.
struct Arange : HostKernel {
  static at::Tensor& call(const c10::Scalar& start, const c10::Scalar& end, const c10::Scalar& step, at::Tensor& out) {
    if (release::arange_bounds_as_result && out.scalar_type() == c10::ScalarType::Byte) {
      start.toByte();  // raises: value cannot be converted to type uint8_t without overflow
      step.toByte();
    }
    return at::_ops::arange_start_out::redispatch(key_of(out), start, end, step, out);
  }
};

// Weights other than float32, float16 and int32 are cast to int32, and the counts have the dtype of the weights, where
// the CPU gives float64 (torch 2.13, Bincount.mm).
struct Bincount : HostKernel {
  static at::Tensor call(const at::Tensor& self, const std::optional<at::Tensor>& weights, const c10::SymInt& length) {
    at::Tensor counts;
    if (!weights.has_value() || !weights->defined() || self.numel() == 0) {
      counts = at::_ops::bincount::redispatch(key_of(self), self, weights, length);
    } else {
      const auto given = weights->scalar_type();
      const bool kept = given == c10::ScalarType::Float || given == c10::ScalarType::Half || given == c10::ScalarType::Int;
      const at::Tensor cast = kept ? *weights : weights->to(c10::ScalarType::Int);
      counts = at::_ops::bincount::redispatch(key_of(self), self, cast, length).to(cast.scalar_type());
    }
    return counts;
  }
};

struct Softmax : HostKernel {
  static at::Tensor call(const Rule& rule, const at::Tensor& self, int64_t dim, bool half_to_float) {
    if (C10_UNLIKELY(half_to_float)) {
      refuse_limit(rule, "softmax cast", self);
    }
    if (std::optional<at::Tensor> result = launched(rule, self, dim, half_to_float)) {
      return *std::move(result);
    }
    return at::_ops::_softmax::redispatch(key_of(self), self, dim, half_to_float);
  }
};

struct MaskedScatter : HostKernel {
  static constexpr bool reads_memory = true;  // a mask of more places than values stops a GPU

  static at::Tensor& call(const Rule& rule, at::Tensor& self, const at::Tensor& mask, const at::Tensor& source) {
    const auto type = mask.scalar_type();
    if (type != c10::ScalarType::Bool && type != c10::ScalarType::Byte) {
      refuse_limit(rule, "masked_scatter mask", mask);
    }
    return at::_ops::masked_scatter_::redispatch(key_of(self), self, mask, source);
  }
};

// Its kernel is behind a dispatch stub in which mps has no place, on a Mac neither.
struct KaiserWindow : HostKernel {
  template <class... Args>
  static at::Tensor call(const Rule& rule, int64_t length, Args... args) {
    if (length > 1) {
      refuse_limit(rule, "missing stub");
    }
    return at::native::kaiser_window(length, args...);
  }
};

}  // namespace

void add_limited_kernels(KernelTable& table) {
  namespace ops = at::_ops;
  add_unboxed<ops::_adaptive_avg_pool2d, AdaptiveAveragePool>(table);
  table.rows.emplace_back(full_name<ops::convolution>(), [](const Rule& rule) {
    return c10::KernelFunction::makeFromUnboxedFunctor<false, ConvolutionKernel>(std::make_unique<ConvolutionKernel>(rule));
  });
  table.rows.emplace_back(full_name<ops::_convolution>(), [](const Rule&) {
    return c10::KernelFunction::makeFromUnboxedRuntimeFunction(&traced_convolution);
  });
  add_unboxed<ops::addmm, Addmm>(table);
  add_unboxed<ops::arange_start_out, Arange>(table);
  if (substrate().holds_data()) {  // else the redirect knows how many bins there are
    add_unboxed<ops::bincount, Bincount>(table);
  }
  add_unboxed<ops::masked_scatter_, MaskedScatter>(table);
  add_unboxed<ops::_softmax, Softmax>(table);
  add_unboxed<ops::kaiser_window, KaiserWindow>(table);
  add_unboxed<ops::kaiser_window_periodic, KaiserWindow>(table);
  add_unboxed<ops::kaiser_window_beta, KaiserWindow>(table);
}

}  // namespace anymps
