// A call whose dtypes have no Metal kernel: the name that its operator asks for, and what the lack of it says.
#include "kernels/checks/argument_checks.h"

#include "device/device.h"
#include "kernels/random/drawing.h"
#include "kernels/redirect/boxed_arguments.h"

#include <ATen/core/Tensor.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/ScalarType.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace anymps {
namespace {

bool among(uint64_t bits, c10::ScalarType type) {
  return (bits >> static_cast<int>(type)) & 1;
}

// scalarToMetalTypeString in aten/src/ATen/native/mps/OperationUtils.mm
const char* metal_name_of(c10::ScalarType type) {
  if (const std::optional<ElementType> element = drawing::element_of(type)) {
    return metal_name(*element);
  }
  return type == c10::ScalarType::ComplexHalf ? "half2" : type == c10::ScalarType::ComplexFloat ? "float2" : "float8_e4m3fn";
}

void fill_in_place(std::string& text, const char* what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, 2, by);
  }
}

// Zeros of the CPU that lie as a tensor does.
at::Tensor zeros_placed_as(const at::Tensor& tensor) {
  if (!tensor.defined()) {
    return tensor;
  }
  at::Tensor zeros = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU));
  if (zeros.storage().nbytes() > 0) {
    std::memset(zeros.storage().mutable_data(), 0, zeros.storage().nbytes());
  }
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    zeros.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return zeros;
}

// Whether an operator's checks are apart from its kernels, the same on all devices. Those are its kernel for meta tensors, though
// torch may have put one in Python before it.
bool is_structured(const c10::OperatorHandle& op) {
  return op.dumpState().find("/RegisterMeta") != std::string::npos;
}

// Raises what these checks say, as the CPU's kernel begins with them.
void check_sizes(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  if (!is_structured(rule.op)) {
    return;
  }
  torch::jit::Stack stack(arguments.begin(), arguments.end());
  convert_arguments(rule, rule.op.schema().arguments(), stack, [](const at::Tensor& tensor, bool, size_t) { return zeros_placed_as(tensor); });
  try {
    rule.op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
  } catch (const c10::Error& error) {
    for (const char* by_kernel : {" not implemented for '", "ZeroDivisionError"}) {
      if (error.msg().find(by_kernel) != std::string::npos) {
        return;
      }
    }
    throw;
  }
}

// What MPS says to the dtype of the first tensor.
void check_first(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    const at::Tensor first = argument.isTensor() ? argument.toTensor()
        : argument.isTensorList() && argument.toTensorList().size() > 0 ? at::Tensor(argument.toTensorList().get(0))
                                                                         : at::Tensor();
    if (!first.defined()) {
      continue;
    }
    const auto type = static_cast<int>(first.scalar_type());
    if ((rule.refused >> type) & 1) {
      const RefusedDtype& refusal = rule.refusals.at(type);
      check_sizes(rule, arguments);
      refuse(Refusal::Dtype, rule, static_cast<ErrorClass>(refusal.error), refusal.text, first);
    }
    return;
  }
}

// One call, its tensors and its number.
class AskedKernel {
  using Form = KernelName::Form;
  using Type = c10::ScalarType;

 public:
  AskedKernel(const Rule& rule, c10::ArrayRef<c10::IValue> arguments)
      : rule_(rule), kernel_(rule.kernel), arguments_(arguments) {
    const std::string& name = rule.op.operator_name().name;
    const bool in_place = name.back() == '_' && name.compare(0, 8, "aten::__") != 0;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const bool written = (rule.writes >> i) & 1;
      if (arguments[i].isTensor()) {
        take(arguments[i].toTensor(), written, /*resized=*/written && !in_place);
      } else if (arguments[i].isTensorList()) {
        listed_ = arguments[i].toTensorVector();
        for (const at::Tensor& tensor : listed_) {
          take(tensor, written, /*resized=*/true);  // some may be empty, and the result not
        }
      } else if (arguments[i].isScalar() && !number_.has_value()) {
        number_ = arguments[i].toScalar();
      }
    }
  }

  void check() const {
    if (lacking_ == nullptr || empty_) {
      return;
    }
    switch (kernel_.form) {
      case Form::Graph:
        refuse_with(lacking_->scalar_type() == Type::Double ? "float64 graph" : "graph type", c10::toString(lacking_->scalar_type()));
      case Form::Fill:
        if (number_.has_value() && !number_->isComplex() && number_->toDouble() == 0) {
          return;  // a fill of bytes
        }
        [[fallthrough]];
      case Form::First:
        if (first_ == lacking_) {
          refuse_name(kernel_.name, first_->scalar_type(), first_->scalar_type(), layout_of_one());
        }
        break;
      default: check_operands();
    }
  }

 private:
  void take(const at::Tensor& tensor, bool written, bool resized) {
    if (!tensor.defined()) {
      return;
    }
    empty_ |= tensor.numel() == 0 && !resized;
    if (second_ == nullptr && first_ != nullptr && !written) {
      second_ = &tensor;
    }
    first_ = first_ == nullptr ? &tensor : first_;
    if (lacking_ == nullptr && tensor.is_mps() && among(kernel_.missing, tensor.scalar_type())) {
      lacking_ = &tensor;
    }
  }

  void check_operands() const {
    const bool two = second_ != nullptr || number_.has_value();
    const Type left = type_seen(*first_);
    const Type right = second_ != nullptr ? type_seen(*second_) : number_.has_value() ? as_number(number_->type()) : left;
    if (left == right) {
      refuse_name(kernel_.name, result_of(left), left, layout_of_two());
    }
    const Type common = two ? common_type() : left;
    const Type result = result_of(common);
    const Type computed = kernel_.form == Form::Comparison ? common : result;
    if (among(kernel_.missing, computed)) {
      refuse_name(kernel_.cast, result, computed, layout_of_two());
    }
  }

  // A number of Python's is as narrow on the device as its dtypes are.
  static Type as_number(Type type) {
    return type == Type::Double ? Type::Float : type == Type::ComplexDouble ? Type::ComplexFloat : type;
  }
  static Type type_seen(const at::Tensor& tensor) {
    return tensor.dim() == 0 ? as_number(tensor.scalar_type()) : tensor.scalar_type();
  }

  Type result_of(Type common) const {
    if (kernel_.form == Form::Comparison) {
      return Type::Bool;
    }
    const bool floats = kernel_.form == Form::Quotient && c10::isIntegralType(common, /*includeBool=*/true);
    return floats ? c10::typeMetaToScalarType(c10::get_default_dtype()) : common;
  }

  Type common_type() const {
    at::native::ResultTypeState state = at::native::update_result_type_state(*first_, {});
    if (second_ != nullptr) {
      state = at::native::update_result_type_state(*second_, state);
    } else {
      state = at::native::update_result_type_state(*number_, state);
    }
    return at::native::result_type(state);
  }

  std::string layout_of_one() const {
    return first_->is_non_overlapping_and_dense() ? "dense" : "strided";
  }

  std::string layout_of_two() const {
    const int64_t left = first_->numel(), right = second_ != nullptr ? second_->numel() : 1;
    const bool dense = first_->is_non_overlapping_and_dense() && (second_ == nullptr || second_->is_non_overlapping_and_dense());
    if (!dense || (left == right && second_ != nullptr && first_->strides() != second_->strides())) {
      return "strided";
    }
    if (left == right) {
      return "dense";
    }
    const bool second_repeats = right < left;
    if ((second_repeats ? right : left) == 1) {
      return second_repeats ? "dense_scalar" : "dense_scalar_lhs";
    }
    return second_repeats ? "dense_broadcast" : "dense_broadcast_rhs";
  }

  [[noreturn]] void refuse_with(const char* text, const std::string& what) const {
    const Limit& limit = texts().limits.at(text);
    check_sizes(rule_, arguments_);
    refuse(Refusal::Dtype, rule_, static_cast<ErrorClass>(limit.error), fill_in(limit.text, what), *lacking_);
  }

  // A dtype without a name in Metal is told before the kernel is looked up.
  [[noreturn]] void refuse_name(std::string name, Type result, Type type, const std::string& layout) const {
    if (result == Type::Double && !kernel_.cast.empty()) {
      refuse_with("float64 kernel", "");
    }
    for (const Type one : {result, type}) {
      if (!among(texts().castable, one)) {
        refuse_with("metal type", c10::toString(one));
      }
    }
    for (const auto& [place, by] : {
             std::pair<const char*, std::string>{"%L", layout},
             {"%B", layout},
             {"%O", metal_name_of(result)},
             {"%T", metal_name_of(type)},
             {"%I", metal_name_of(type)},
             {"%C", metal_name_of(type)}}) {
      fill_in_place(name, place, by);
    }
    refuse_with("missing kernel", name);
  }

  const Rule& rule_;
  const KernelName& kernel_;
  const c10::ArrayRef<c10::IValue> arguments_;
  const at::Tensor* first_ = nullptr;
  const at::Tensor* second_ = nullptr;
  const at::Tensor* lacking_ = nullptr;
  std::vector<at::Tensor> listed_;
  std::optional<c10::Scalar> number_;
  bool empty_ = false;
};

}  // namespace

void check_kernels(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  check_first(rule, arguments);
  if (rule.kernel.missing != 0) {
    AskedKernel(rule, arguments).check();
  }
}

}  // namespace anymps
