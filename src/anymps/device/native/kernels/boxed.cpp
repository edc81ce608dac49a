// The redirect to CPU kernels and the CPU fallback, for any operator, through the dispatcher's boxed convention.
#include "kernels/boxed.h"

#include "device/device.h"
#include "kernels/indices.h"
#include "recorder/recorder.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <exception>

namespace anymps {
namespace {

using torch::jit::Stack;

std::atomic<bool> fallback_allowed{false};

bool is_written(const Rule& rule, size_t argument) {
  return argument < 64 && ((rule.writes >> argument) & 1);
}

// TorchScript's interpreter brings indices as a list of tensors, or of optional tensors under a type of its own, which
// IValue does not take for the C++ one.
void settle_optional_lists(const Rule& rule, Stack& stack, size_t first) {
  for (size_t i = 0; (rule.optional_lists >> i) != 0; ++i) {
    c10::IValue& value = stack[first + i];
    if (!((rule.optional_lists >> i) & 1) || !value.isList() || value.isOptionalTensorList()) {
      continue;
    }
    c10::List<std::optional<at::Tensor>> settled;
    for (const c10::IValue& item : value.toListRef()) {
      settled.push_back(item.isTensor() ? std::optional<at::Tensor>(item.toTensor()) : std::nullopt);
    }
    value = std::move(settled);
  }
}

bool holds_tensors(const c10::List<c10::IValue>& list) {
  for (const c10::IValue& item : list) {
    if (item.isTensor()) {
      return true;
    }
  }
  return false;
}

// Replaces every tensor among the arguments with what `convert(tensor, written, position)` gives for it.
template <class Convert>
void convert_arguments(const Rule& rule, c10::ArrayRef<c10::Argument> schema, Stack& stack, Convert&& convert) {
  const size_t begin = stack.size() - schema.size();
  for (size_t i = 0; i < schema.size(); ++i) {
    c10::IValue& value = stack[begin + i];
    const bool written = is_written(rule, i);
    if (value.isTensor()) {
      value = convert(value.toTensor(), written, i);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> converted;
      for (const at::Tensor& tensor : value.toTensorVector()) {
        converted.push_back(convert(tensor, written, i));
      }
      value = std::move(converted);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> converted;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        converted.push_back(tensor.has_value() ? std::optional<at::Tensor>(convert(*tensor, written, i)) : std::nullopt);
      }
      value = std::move(converted);
    } else if (value.isList() && holds_tensors(value.toList())) {
      c10::List<c10::IValue> converted(value.toList().elementType());
      for (const c10::IValue& item : value.toList()) {
        converted.push_back(item.isTensor() ? c10::IValue(convert(item.toTensor(), written, i)) : item);
      }
      value = std::move(converted);
    } else if (value.isDevice() && value.toDevice().is_mps()) {
      value = c10::Device(c10::DeviceType::CPU);
    }
  }
}

template <class Convert>
void convert_results(Stack& stack, size_t first, Convert&& convert) {
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isTensor()) {
      at::Tensor result = std::move(value).toTensor();
      value = convert(std::move(result), i - first);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> converted;
      std::vector<at::Tensor> items = std::move(value).toTensorVector();
      value = c10::IValue();
      for (at::Tensor& item : items) {
        converted.push_back(convert(std::move(item), i - first));
      }
      value = std::move(converted);
    }
  }
}

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
                : rule.keeps_wide            ? c10::ScalarType::Long
                                             : c10::ScalarType::Double) {}

  // Whether a tensor is already as wide as another would become: an operator that refuses the two together would take them
  // then. A 0-dim one follows the others.
  bool would_hide_a_mixture(const c10::OperatorHandle& op, const Stack& stack, size_t first) const {
    const auto& arguments = op.schema().arguments();
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::IValue& value = stack[first + i];
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
      return wide_ == c10::ScalarType::Long ? std::move(result) : result.to(narrow_);
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

// The dtype that decides whether a call is widened: that of its first tensor, or of its argument `dtype`.
std::optional<c10::ScalarType> widened_dtype(const Rule& rule, c10::ArrayRef<c10::Argument> schema, const Stack& stack, size_t first) {
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

class Redirect final : public c10::OperatorKernel {
 public:
  Redirect(const Rule& rule, c10::DispatchKey host_key) : rule_(rule), host_key_(c10::DispatchKeySet(host_key)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    try {
      run(op, stack);
    } catch (const c10::Error& error) {
      rethrow_as_ours(error);
    }
  }

 private:
  void run(const c10::OperatorHandle& op, Stack* stack) {
    const auto& schema = op.schema();
    const size_t first = stack->size() - schema.arguments().size();
    if (C10_UNLIKELY(rule_.optional_lists != 0)) {
      settle_optional_lists(rule_, *stack, first);
    }
    if (C10_UNLIKELY(rule_.hazards != nullptr)) {
      check_hazards(rule_, c10::ArrayRef<c10::IValue>(*stack).slice(first));
    }
    const bool on_host = substrate().computes_on_host(rule_, [&](ArgumentVisitor& visitor) { show(*stack, first, visitor); });
    const Stack given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());  // holds what the call refers to
    Call call(rule_, host_key_.has(c10::DispatchKey::SparseCPU), on_host);
    std::optional<AlertScope> alert;
    if (C10_UNLIKELY(alerts(rule_))) {
      alert.emplace(rule_, c10::ArrayRef<c10::IValue>(*stack).slice(first));
    }
    if (C10_UNLIKELY(rule_.waits_if != nullptr) && rule_.waits_if(c10::ArrayRef<c10::IValue>(*stack).slice(first))) {
      call.span().wait(rule_.wait);
    }
    if (C10_UNLIKELY(rule_.check != nullptr)) {
      rule_.check(rule_, c10::ArrayRef<c10::IValue>(*stack).slice(first));
    }
    std::optional<HostGenerator> generator;
    if (C10_UNLIKELY(rule_.generator_argument >= 0)) {
      c10::IValue& value = (*stack)[first + static_cast<size_t>(rule_.generator_argument)];
      generator.emplace(rule_, value.isNone() ? std::optional<at::Generator>() : std::optional<at::Generator>(value.toGenerator()));
      value = generator->host();
    }
    convert_arguments(rule_, schema.arguments(), *stack, [&](const at::Tensor& tensor, bool written, size_t position) {
      return call.to_alias(tensor, written, position);
    });
    if (C10_UNLIKELY(rule_.change != nullptr) && on_host) {
      rule_.change(*stack, first);
    }
    std::optional<c10::ScalarType> narrow;
    if (C10_UNLIKELY(rule_.widened != 0)) {
      narrow = widened_dtype(rule_, schema.arguments(), *stack, first);
    }
    if (C10_UNLIKELY(!on_host)) {
      substrate().compute(rule_, op, stack, given);
    } else if (C10_UNLIKELY(narrow.has_value())) {
      compute_widely(op, stack, first, *narrow);
    } else if (rule_.indices != nullptr && !host_key_.has(c10::DispatchKey::SparseCPU)) {
      compute_with_indices(rule_, op, host_key_, stack, first);
    } else {
      op.redispatchBoxed(host_key_, stack);
    }
    convert_results(*stack, first, [&](at::Tensor&& result, size_t) { return call.to_mps(std::move(result)); });
    call.finish();
  }

  void show(const Stack& stack, size_t first, ArgumentVisitor& visitor) const {
    for (size_t i = first; i < stack.size(); ++i) {
      visitor.value(stack[i], is_written(rule_, i - first));
    }
  }

  // The CPU kernel, which may have the dtype for these arguments after all; if it says that it lacks it, a wider one. What
  // else it says, torch's code for all devices says: a wider dtype must not get round it.
  void compute_widely(const c10::OperatorHandle& op, Stack* stack, size_t first, c10::ScalarType narrow) const {
    Widening widening(rule_, narrow);
    const bool mixed = widening.would_hide_a_mixture(op, *stack, first);
    if (rule_.always_wide && !mixed) {
      widening.run(op, host_key_, stack, first);
      return;
    }
    const Stack arguments(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
    std::exception_ptr said;
    try {
      op.redispatchBoxed(host_key_, stack);
      return;
    } catch (const c10::Error& error) {
      if (mixed || !tells_of_dtype(error, rule_.widened)) {
        throw;
      }
      said = std::current_exception();
      stack->resize(first);
      stack->insert(stack->end(), arguments.begin(), arguments.end());
    }
    try {
      widening.run(op, host_key_, stack, first);
    } catch (const c10::Error&) {  // so it was not about the dtype; the first error names the types that the user gave
      std::rethrow_exception(said);
    }
  }

  const Rule& rule_;
  const c10::DispatchKeySet host_key_;
};

bool needs_gradient(const at::Tensor& tensor) {
  return tensor.is_mps() && tensor.requires_grad() && c10::GradMode::is_enabled() &&
      !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::AutogradMPS);
}

// What PyTorch's generic CPU fallback does with a call (reference: aten/src/ATen/native/CPUFallback.cpp, torch 2.13).
void fall_back(const Rule& rule, const c10::OperatorHandle& op, Stack* stack) try {
  enter_device();
  const auto& schema = op.schema();
  const auto& arguments = schema.arguments();
  const size_t first = stack->size() - arguments.size();
  settle_optional_lists(rule, *stack, first);
  Span span(rule);
  span.fate(rule.fate == Fate::AlwaysFallback ? Fate::AlwaysFallback : Fate::Fallback);
  span.wait(Wait::Fallback);
  const Muted inside;  // the copies there and back are this entry's

  struct Argument {
    at::Tensor original;
    at::Tensor host;
    size_t position;
  };
  std::vector<Argument> tensors;
  std::vector<const c10::TensorImpl*> inputs;
  std::optional<c10::Device> target;
  int64_t moved = 0;
  bool assumed = false;  // something stands in for an argument whose values are not known
  // An operator without a derivative of its own (linalg_svd) comes here with autograd still on: the copies and the CPU's
  // operators inside are then recorded, as on the real backend.
  bool tracked = false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = (*stack)[first + i];
    if (value.isDevice()) {
      target = value.toDevice();
    }
  }
  convert_arguments(rule, arguments, *stack, [&](const at::Tensor& tensor, bool, size_t position) {
    if (!tensor.defined()) {
      return tensor;
    }
    if (!target.has_value()) {
      target = tensor.device();  // the device of the first tensor argument, wherever that is
    }
    span.input(tensor.unsafeGetTensorImpl());
    at::Tensor host = tensor;
    if (needs_gradient(tensor)) {
      tracked = true;
      host = tensor.cpu();
      moved += static_cast<int64_t>(tensor.nbytes());
    } else if (!tensor.is_cpu()) {
      c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
      host = substrate().stand_in(tensor);
      if (C10_UNLIKELY(host.defined())) {
        assumed = true;
      } else {
        host = (tensor.is_sparse() ? sparse_to_host(tensor) : at::Tensor(substrate().host_alias(tensor.unsafeGetTensorImpl()))).clone();
      }
      moved += static_cast<int64_t>(tensor.is_sparse() ? 0 : tensor.nbytes());
    }
    tensors.push_back({tensor, host, position});
    return host;
  });
  for (const Argument& argument : tensors) {
    inputs.push_back(argument.original.unsafeGetTensorImpl());
  }

  {
    std::optional<c10::impl::ExcludeDispatchKeyGuard> below;
    if (!tracked) {
      below.emplace(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    }
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
    for (const Argument& argument : tensors) {
      if (is_written(rule, argument.position) && argument.original.is_mps()) {
        if (!argument.original.sizes().equals(argument.host.sizes())) {
          argument.original.resize_(argument.host.sizes());
        }
        argument.original.copy_(argument.host);
        if (assumed) {
          substrate().wrote(argument.original);
        }
      }
    }
  }
  if (assumed) {
    assume(rule.name);
  }

  std::vector<const c10::TensorImpl*> outputs;
  const auto& returns = schema.returns();
  convert_results(*stack, first, [&](at::Tensor&& result, size_t index) -> at::Tensor {
    if (!result.defined()) {
      return std::move(result);
    }
    const c10::AliasInfo* info = index < returns.size() ? returns[index].alias_info() : nullptr;
    if (info != nullptr && info->isWrite()) {
      for (const Argument& argument : tensors) {
        if (argument.host.is_same(result)) {
          return argument.original;
        }
      }
    }
    if (!target.has_value() || !target->is_mps()) {
      return std::move(result);
    }
    if (info != nullptr && !info->isWrite()) {
      TORCH_WARN(fill_in(texts().view_fallback_warning, rule.name));
    }
    check_allocatable(result.scalar_type());
    moved += static_cast<int64_t>(result.has_storage() ? result.nbytes() : 0);
    const bool compressed = !result.is_sparse() && !result.has_storage();  // sparse CSR and its like
    if (compressed || (tracked && result.requires_grad())) {
      return result.to(kMpsDevice);
    }
    at::Tensor own = result;
    if (!result.is_sparse() && (result.use_count() > 1 || result.storage().use_count() > 1)) {
      own = result.clone();
    }
    result.reset();
    if (own.is_sparse()) {
      return sparse_to_mps(own);
    }
    adopt(own.unsafeGetTensorImpl());
    if (assumed) {
      substrate().wrote(own);
    }
    outputs.push_back(own.unsafeGetTensorImpl());
    return own;
  });
  span.moved(Direction::None, moved, false);
  span.end(inputs, outputs);
  host_has_waited();
} catch (const c10::Error& error) {
  rethrow_as_ours(error);
}

void warn_fallback(const std::string& name) {
  // One site for all operators: only the first one of the process is ever named, as on the real backend.
  TORCH_WARN_ONCE(fill_in(texts().fallback_warning, name));
}

class AlwaysFallback final : public c10::OperatorKernel {
 public:
  explicit AlwaysFallback(const Rule& rule) : rule_(rule) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    warn_fallback(rule_.name);
    fall_back(rule_, op, stack);
  }

 private:
  const Rule& rule_;
};

class CatchAll final : public c10::OperatorKernel {
 public:
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const Rule& rule = unlisted_rule(op);
    if (rule.fate == Fate::Native) {
      Redirect(rule, c10::DispatchKey::CPU)(op, {}, stack);
      return;
    }
    if (rule.name.rfind("c10d::", 0) == 0 && !texts().distributed.empty()) {
      refuse(Refusal::Distributed, rule, ErrorClass::NotImplemented, fill_in(texts().distributed, rule.name));
    }
    if (!fallback_allowed.load(std::memory_order_relaxed)) {
      refuse(Refusal::Missing, rule, ErrorClass::NotImplemented, fill_in(texts().missing, rule.name));
    }
    warn_fallback(rule.name);
    fall_back(rule, op, stack);
  }
};

}  // namespace

c10::KernelFunction make_redirect(const Rule& rule, c10::DispatchKey host_key) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Redirect>(rule, host_key));
}

c10::KernelFunction make_fallback(const Rule& rule) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<AlwaysFallback>(rule));
}

c10::KernelFunction make_catch_all() {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<CatchAll>());
}

void set_fallback_allowed(bool allowed) {
  fallback_allowed.store(allowed);
}

}  // namespace anymps
