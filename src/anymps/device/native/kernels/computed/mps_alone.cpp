// Operators that are registered for MPS and have no kernel, on the CPU or as a composite, under their own name.
#include "device/device.h"
#include "kernels/redirect/kernel_table.h"
#include "kernels/redirect/unboxed.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_convert_weight_to_int4pack_ops.h>
#include <ATen/ops/_mps_convolution_ops.h>
#include <ATen/ops/_mps_convolution_transpose_ops.h>
#include <ATen/ops/_weight_int4pack_mm_ops.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_left_shift.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_right_shift.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mps_convolution_backward_ops.h>
#include <ATen/ops/mps_convolution_transpose_backward_ops.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>

#include <array>
#include <optional>
#include <tuple>
#include <vector>

namespace anymps {
namespace {

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

void add_kernels_of_mps_alone(KernelTable& table) {
  namespace ops = at::_ops;
  add_unboxed<ops::_convert_weight_to_int4pack, PackInt4>(table);
  add_unboxed<ops::_weight_int4pack_mm, MultiplyInt4>(table);
  add_unboxed<ops::_mps_convolution, Convolve>(table);
  add_unboxed<ops::_mps_convolution_transpose, ConvolveTransposed>(table);
  add_unboxed<ops::mps_convolution_backward, ConvolveBackward>(table);
  add_unboxed<ops::mps_convolution_transpose_backward, ConvolveTransposedBackward>(table);
}

}  // namespace anymps
