// Widening: arguments cast to a wider dtype, the CPU kernel, results and written arguments cast back.
#include "kernels/computed/widening.h"

#include "kernels/redirect/boxed_arguments.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>

#include <exception>

namespace anymps {
namespace {

using torch::jit::Stack;

// A call whose dtype the CPU refuses and MPS computes: done in a wider type, of which results and written arguments are
// cast back. Which operators and dtypes these are: anymps/rules/_dtypes.py.
class Widening {
 public:
  Widening(const Rule& rule, c10::ScalarType narrow)
      : rule_(rule),
        narrow_(narrow),
        wide_(
            c10::isFloatingType(narrow)      ? c10::ScalarType::Float
                : c10::isComplexType(narrow) ? c10::ScalarType::ComplexDouble
                : rule.keeps_wide || narrow == c10::ScalarType::UInt64 ? c10::ScalarType::Long  // of the same bits
                                             : c10::ScalarType::Double) {}

  // Whether a tensor is already as wide as another would become: an operator that refuses the two together would take them
  // then. A 0-dim one follows the others.
  bool would_hide_a_mixture(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> values) const {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue& value = values[i];
      if (value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == wide_ && value.toTensor().dim() > 0 &&
          !is_written(rule_, i) && !is_index(arguments[i].name())) {
        return true;
      }
    }
    return false;
  }

  void run(const c10::OperatorHandle& op, c10::DispatchKeySet key, Stack* stack, size_t first) {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      c10::IValue& value = (*stack)[first + i];
      const std::string& name = arguments[i].name();
      if (value.isInt() && name == "dtype" && value.toInt() == static_cast<int64_t>(narrow_)) {
        value = static_cast<int64_t>(wide_);
      } else if (value.isTensor() && !is_index(name)) {
        const at::Tensor& tensor = value.toTensor();
        const auto type = tensor.defined() ? tensor.scalar_type() : c10::ScalarType::Undefined;
        const bool complex = narrow_ == c10::ScalarType::Half && type == c10::ScalarType::ComplexHalf;
        if (type == narrow_ || complex) {
          at::Tensor wide = tensor.to(complex ? c10::ScalarType::ComplexFloat : wide_);
          widened_.push_back({tensor, wide, is_written(rule_, i) || name.rfind("running_", 0) == 0});
          value = std::move(wide);
        }
      }
    }
    op.redispatchBoxed(key, stack);
    for (const Argument& argument : widened_) {
      if (argument.written) {
        if (!argument.narrow.sizes().equals(argument.wide.sizes())) {
          argument.narrow.resize_(argument.wide.sizes());
        }
        argument.narrow.copy_(argument.wide);
      }
    }
    convert_results(*stack, first, [&](at::Tensor&& result, size_t) { return cast_back(std::move(result)); });
  }

 private:
  struct Argument {
    at::Tensor narrow;
    at::Tensor wide;
    bool written;
  };

  static bool is_index(const std::string& name) {
    return name == "target" || name == "index" || name == "indices" || name == "mask";
  }

  at::Tensor cast_back(at::Tensor&& result) const {
    if (!result.defined()) {
      return std::move(result);
    }
    for (const Argument& argument : widened_) {
      if (argument.wide.is_same(result)) {
        return argument.narrow;
      }
    }
    const auto type = result.scalar_type();
    if (type == wide_) {
      return rule_.keeps_wide ? std::move(result) : result.to(narrow_);
    }
    if (narrow_ == c10::ScalarType::Half && type == c10::ScalarType::ComplexFloat) {
      return result.to(c10::ScalarType::ComplexHalf);
    }
    return std::move(result);
  }

  const Rule& rule_;
  const c10::ScalarType narrow_;
  const c10::ScalarType wide_;
  std::vector<Argument> widened_;
};

// The names that the CPU's kernels give the dtypes they lack, and those of its texts that give none.
bool tells_of_dtype(const c10::Error& error, uint64_t widened) {
  const std::string said = error.what_without_backtrace();
  static const std::string before = "not implemented for '";
  const size_t at = said.find(before);
  if (at == std::string::npos) {
    return said.find("Boolean inputs not supported") != std::string::npos || said.find("Unsupported dtype") != std::string::npos ||
        said.find("doesn't support tensors of type") != std::string::npos ||  // MKL's transforms
        said.find("only support floating point and complex dtypes") != std::string::npos;
  }
  for (int type = 0; type < static_cast<int>(c10::ScalarType::NumOptions); ++type) {
    const auto scalar = static_cast<c10::ScalarType>(type);
    const std::string named = std::string(c10::toString(scalar)) + "'";
    const bool complex = scalar == c10::ScalarType::ComplexHalf && ((widened >> static_cast<int>(c10::ScalarType::Half)) & 1);
    if ((((widened >> type) & 1) || complex) && said.compare(at + before.size(), named.size(), named) == 0) {
      return true;
    }
  }
  return false;
}

}  // namespace

std::optional<c10::ScalarType> widened_dtype(
    const Rule& rule, c10::ArrayRef<c10::Argument> schema, const Stack& stack, size_t first) {
  for (size_t i = 0; i < schema.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    int64_t type = -1;
    if (value.isTensor() && value.toTensor().defined()) {
      type = static_cast<int64_t>(value.toTensor().scalar_type());
    } else if (value.isInt() && schema[i].name() == "dtype") {
      type = value.toInt();
    }
    if (type >= 0) {
      return ((rule.widened >> type) & 1) ? std::optional<c10::ScalarType>(static_cast<c10::ScalarType>(type)) : std::nullopt;
    }
  }
  return std::nullopt;
}

void compute_widely(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, Stack* stack, size_t first, c10::ScalarType narrow) {
  Widening widening(rule, narrow);
  if (rule.always_wide && !widening.would_hide_a_mixture(op, c10::ArrayRef<c10::IValue>(*stack).slice(first))) {
    widening.run(op, key, stack, first);
    return;
  }
  const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::exception_ptr said;
  try {
    op.redispatchBoxed(key, stack);
    return;
  } catch (const c10::Error& error) {
    if (!tells_of_dtype(error, rule.widened) || widening.would_hide_a_mixture(op, arguments)) {
      throw;
    }
    said = std::current_exception();
    stack->resize(first);
    stack->insert(stack->end(), arguments.begin(), arguments.end());
  }
  try {
    widening.run(op, key, stack, first);
  } catch (const c10::Error&) {  // so it was not about the dtype; the first error names the types that the user gave
    std::rethrow_exception(said);
  }
}

}  // namespace anymps
