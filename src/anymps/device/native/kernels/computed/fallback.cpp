// One call of the CPU fallback, step by step; and widening: arguments cast to a wider dtype, the CPU kernel, results and written
// arguments cast back.
#include "kernels/computed/fallback.h"

#include "device/device.h"
#include "kernels/redirect/boxed_arguments.h"
#include "recorder/recorder.h"

#include <ATen/TracerMode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <exception>
#include <optional>

namespace anymps {
namespace {

using torch::jit::Stack;

bool needs_gradient(const at::Tensor& tensor) {
  return tensor.is_mps() && tensor.requires_grad() && c10::GradMode::is_enabled() &&
      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradMPS);
}

// What PyTorch's generic CPU fallback does with a call (reference: aten/src/ATen/native/CPUFallback.cpp, torch 2.13).
class FallbackCall {
 public:
  FallbackCall(const Rule& rule, const c10::OperatorHandle& op, Stack& stack)
      : rule_(rule), op_(op), stack_(stack), first_(stack.size() - op.schema().arguments().size()), span_(rule) {
    span_.fate(rule.fate == Fate::AlwaysFallback ? Fate::AlwaysFallback : Fate::Fallback);
    span_.wait(Wait::Fallback);
  }

  void run() {
    const Muted inside;  // the copies there and back are this entry's
    const OneThread alone(most_elements() <= kSmallWork);  // these copies too
    const at::tracer::impl::NoTracerDispatchMode untraced;
    find_device_argument();
    convert_arguments(rule_, op_.schema().arguments(), stack_, [&](const at::Tensor& tensor, bool, size_t position) {
      return to_cpu(tensor, position);
    });
    compute();
    if (assumed_) {
      assume(rule_.name);
    }
    convert_results(stack_, first_, [&](at::Tensor&& result, size_t index) { return to_mps(std::move(result), index); });
    finish();
  }

 private:
  struct Argument {
    at::Tensor original;
    at::Tensor host;
    size_t position;
  };

  int64_t most_elements() const {
    int64_t most = 0;
    for (size_t i = first_; i < stack_.size(); ++i) {
      if (stack_[i].isTensor() && stack_[i].toTensor().defined()) {
        most = std::max(most, stack_[i].toTensor().numel());
      } else if (stack_[i].isTensorList()) {
        for (const at::Tensor& tensor : stack_[i].toTensorVector()) {
          most = std::max(most, tensor.numel());
        }
      }
    }
    return most;
  }

  void find_device_argument() {
    for (size_t i = first_; i < stack_.size(); ++i) {
      if (stack_[i].isDevice()) {
        target_ = stack_[i].toDevice();
      }
    }
  }

  at::Tensor to_cpu(const at::Tensor& tensor, size_t position) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!target_.has_value()) {
      target_ = tensor.device();  // the device of the first tensor argument, wherever that is
    }
    span_.input(tensor.unsafeGetTensorImpl());
    at::Tensor host = tensor;
    if (needs_gradient(tensor)) {
      tracked_ = true;
      host = tensor.cpu();
      moved_ += static_cast<int64_t>(tensor.nbytes());
    } else if (!tensor.is_cpu()) {
      host = copy_of(tensor);
      moved_ += static_cast<int64_t>(tensor.is_sparse() ? 0 : tensor.nbytes());
    }
    arguments_.push_back({tensor, host, position});
    return host;
  }

  at::Tensor copy_of(const at::Tensor& tensor) {
    c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    if (at::Tensor stand_in = substrate().stand_in(tensor); C10_UNLIKELY(stand_in.defined())) {
      assumed_ = true;
      return stand_in;
    }
    const at::Tensor alias = tensor.is_sparse() ? sparse_to_host(tensor) : at::Tensor(substrate().host_alias(tensor.unsafeGetTensorImpl()));
    return alias.is_cpu() ? alias.clone() : alias.cpu();
  }

  void compute() {
    std::optional<c10::impl::ExcludeDispatchKeyGuard> below;
    if (!tracked_) {
      below.emplace(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    }
    op_.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack_);
    for (const Argument& argument : arguments_) {
      if (is_written(rule_, argument.position) && argument.original.is_mps()) {
        write_back(argument);
      }
    }
  }

  void write_back(const Argument& argument) const {
    if (!argument.original.sizes().equals(argument.host.sizes())) {
      argument.original.resize_(argument.host.sizes());
    }
    argument.original.copy_(argument.host);
    if (assumed_) {
      substrate().wrote(argument.original);
    }
  }

  at::Tensor to_mps(at::Tensor&& result, size_t index) {
    if (!result.defined()) {
      return std::move(result);
    }
    const auto& returns = op_.schema().returns();
    const c10::AliasInfo* info = index < returns.size() ? returns[index].alias_info() : nullptr;
    if (info != nullptr && info->isWrite()) {
      for (const Argument& argument : arguments_) {
        if (argument.host.is_same(result)) {
          return argument.original;
        }
      }
    }
    if (!target_.has_value() || !target_->is_mps()) {
      return std::move(result);
    }
    if (info != nullptr && !info->isWrite()) {
      TORCH_WARN(fill_in(texts().view_fallback_warning, rule_.name));
    }
    check_allocatable(result.scalar_type());
    moved_ += static_cast<int64_t>(result.has_storage() ? result.nbytes() : 0);
    const bool compressed = !result.is_sparse() && !result.has_storage();  // sparse CSR and its like
    if (compressed || (tracked_ && result.requires_grad())) {
      return result.to(kMpsDevice);
    }
    return adopted(std::move(result));
  }

  at::Tensor adopted(at::Tensor&& result) {
    at::Tensor own = result.is_sparse() ? result : result.clone();  // no larger than it is, though it looks into a larger storage
    result.reset();
    if (own.is_sparse()) {
      return sparse_to_mps(own);
    }
    adopt(own.unsafeGetTensorImpl());
    if (assumed_) {
      substrate().wrote(own);
    }
    outputs_.push_back(own.unsafeGetTensorImpl());
    return own;
  }

  void finish() {
    std::vector<const c10::TensorImpl*> inputs;
    for (const Argument& argument : arguments_) {
      inputs.push_back(argument.original.unsafeGetTensorImpl());
    }
    span_.moved(Direction::None, moved_, false);
    span_.end(inputs, outputs_);
    host_has_waited();
  }

  const Rule& rule_;
  const c10::OperatorHandle& op_;
  Stack& stack_;
  const size_t first_;
  Span span_;
  std::vector<Argument> arguments_;
  std::vector<const c10::TensorImpl*> outputs_;
  std::optional<c10::Device> target_;
  int64_t moved_ = 0;
  bool assumed_ = false;  // something stands in for an argument whose values are not known
  // An operator without a derivative of its own (linalg_svd) comes here with autograd still on: the copies and the CPU's
  // operators inside are then recorded, as on the real backend.
  bool tracked_ = false;
};

}  // namespace

void fall_back(const Rule& rule, const c10::OperatorHandle& op, Stack* stack) {
  // One site for all operators: only the first one of the process is ever named, as on the real backend.
  TORCH_WARN_ONCE(fill_in(texts().fallback_warning, rule.name));
  try {
    enter_device();
    settle_optional_lists(rule, *stack, stack->size() - op.schema().arguments().size());
    FallbackCall(rule, op, *stack).run();
  } catch (const c10::Error& error) {
    rethrow_as_ours(error);
  }
}

namespace {

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

// The dtype that decides whether a call is widened, if it is to be: that of its first tensor, or of its argument `dtype`.
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

}  // namespace

bool compute_widely(const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, Stack* stack, size_t first) {
  const std::optional<c10::ScalarType> narrow = widened_dtype(rule, op.schema().arguments(), *stack, first);
  if (!narrow.has_value()) {
    return false;
  }
  Widening widening(rule, *narrow);
  if (rule.always_wide && !widening.would_hide_a_mixture(op, c10::ArrayRef<c10::IValue>(*stack).slice(first))) {
    widening.run(op, key, stack, first);
    return true;
  }
  const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  std::exception_ptr said;
  try {
    op.redispatchBoxed(key, stack);
    return true;
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
  return true;
}

}  // namespace anymps
