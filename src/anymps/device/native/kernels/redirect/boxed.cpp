// The redirect to CPU kernels, and what an operator without a kernel gets, through the dispatcher's boxed convention.
#include "kernels/kernels.h"

#include "device/device.h"
#include "kernels/redirect/boxed_arguments.h"
#include "kernels/computed/fallback.h"
#include "kernels/checks/argument_checks.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <anymps/typed_kernels.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/util/Exception.h>

#include <atomic>

namespace anymps {
namespace {

using torch::jit::Stack;

std::atomic<bool> fallback_allowed{false};

// The call's arguments begin at `first`.
void compute_by_cpu(const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet host_key, Stack* stack, size_t first) {
  if (C10_UNLIKELY(rule.change != nullptr)) {
    rule.change(rule, *stack, first);
  }
  if (C10_UNLIKELY(rule.own != nullptr) && rule.own(rule, *stack, first)) {
    return;
  }
  if (C10_UNLIKELY(rule.widened != 0) && compute_widely(rule, op, host_key, stack, first)) {
    return;
  }
  if (rule.indices != nullptr && !host_key.has(c10::DispatchKey::SparseCPU)) {
    compute_with_indices(rule, op, host_key, stack, first);
  } else {
    op.redispatchBoxed(host_key, stack);
  }
}

// By an operator's own kernels, those of the substrate or the CPU's.
class ByKernels final : public Computation {
 public:
  ByKernels(const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet host_key, bool looked_at)
      : rule_(rule), op_(op), host_key_(host_key), looked_at_(looked_at) {}

  void by_kernels(c10::DispatchKeySet key, Stack* stack, size_t first) const override {
    if (C10_UNLIKELY(rule_.change != nullptr)) {
      rule_.change(rule_, *stack, first);
    }
    if (looked_at_ && !host_key_.has(c10::DispatchKey::SparseCPU)) {
      guard_arguments(rule_, op_, stack, first);
    }
    if (C10_LIKELY(rule_.widened == 0) || !compute_widely(rule_, op_, key, stack, first)) {
      op_.redispatchBoxed(key, stack);
    }
  }
  void by_cpu(Stack* stack, size_t first) const override {
    compute_by_cpu(rule_, op_, host_key_, stack, first);
  }
  Needs needs() const override {
    return Needs::Kernels;
  }

 private:
  const Rule& rule_;
  const c10::OperatorHandle& op_;
  const c10::DispatchKeySet host_key_;
  const bool looked_at_;
};

// By one kernel that computes on CPU tensors and on those of the substrate's device, or on CPU tensors alone.
class ByOne final : public Computation {
 public:
  ByOne(const c10::OperatorHandle& op, const c10::KernelFunction& kernel, bool reads_memory)
      : op_(op), kernel_(kernel), reads_memory_(reads_memory) {}

  void by_kernels(c10::DispatchKeySet key, Stack* stack, size_t) const override {
    kernel_.callBoxed(op_, key, stack);
  }
  void by_cpu(Stack* stack, size_t) const override {
    kernel_.callBoxed(op_, c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  }
  Needs needs() const override {
    return reads_memory_ ? Needs::CpuMemory : Needs::Nothing;
  }

 private:
  const c10::OperatorHandle& op_;
  const c10::KernelFunction& kernel_;
  const bool reads_memory_;
};

class Arranged final : public c10::OperatorKernel {
 public:
  Arranged(const Rule& rule, c10::KernelFunction kernel, bool reads_memory)
      : rule_(rule), kernel_(std::move(kernel)), reads_memory_(reads_memory), looked_at_(is_looked_at(rule)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    if (kernel_.isValid()) {
      substrate().compute(rule_, op, stack, {}, ByOne(op, kernel_, reads_memory_), false);
    } else {
      substrate().compute(rule_, op, stack, {}, ByKernels(rule_, op, c10::DispatchKeySet(c10::DispatchKey::CPU), looked_at_), false);
    }
  }

 private:
  const Rule& rule_;
  const c10::KernelFunction kernel_;
  const bool reads_memory_;
  const bool looked_at_;
};

class Redirect final : public c10::OperatorKernel {
 public:
  Redirect(const Rule& rule, c10::DispatchKey host_key)
      : rule_(rule), host_key_(c10::DispatchKeySet(host_key)), looked_at_(is_looked_at(rule)) {}

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
    if (C10_UNLIKELY(rule_.form.any()) && call.span().on()) {
      call.span().form().take(rule_.form, c10::ArrayRef<c10::IValue>(*stack).slice(first));
    }
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
    }, call.device());
    if (C10_UNLIKELY((rule_.kernel.missing | rule_.refused) != 0)) {
      check_kernels(rule_, given);
    }
    const bool offered = C10_UNLIKELY(rule_.offered) && on_host && !host_key_.has(c10::DispatchKey::SparseCPU);
    if (offered && C10_UNLIKELY(rule_.change != nullptr)) {
      rule_.change(rule_, *stack, first);
    }
    if (!offered || !launch(rule_, *stack, given)) {
      if (C10_LIKELY(on_host)) {
        const OneThread alone(call.is_small());
        compute_by_cpu(rule_, op, host_key_, stack, first);
      } else {
        const bool sparse = host_key_.has(c10::DispatchKey::SparseCPU);
        substrate().compute(rule_, op, stack, given, ByKernels(rule_, op, host_key_, looked_at_), sparse);
      }
    }
    convert_results(*stack, first, [&](at::Tensor&& result, size_t) { return call.to_mps(std::move(result)); });
    call.finish();
  }

  void show(const Stack& stack, size_t first, ArgumentVisitor& visitor) const {
    for (size_t i = first; i < stack.size(); ++i) {
      visitor.value(stack[i], is_written(rule_, i - first));
    }
  }

  const Rule& rule_;
  const c10::DispatchKeySet host_key_;
  const bool looked_at_;  // is_looked_at, which reads names
};

class AlwaysFallback final : public c10::OperatorKernel {
 public:
  explicit AlwaysFallback(const Rule& rule) : rule_(rule) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
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
    fall_back(rule, op, stack);
  }
};

}  // namespace

c10::KernelFunction make_redirect(const Rule& rule, c10::DispatchKey host_key) {
  return c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Redirect>(rule, host_key));
}

void BoxedWays::arrange(const Rule& rule, Own own, bool reads_memory) {
  if (rule.widened != 0 || rule.refused != 0 || rule.kernel.missing != 0 || rule.alert != nullptr || rule.offered) {
    redirect = make_redirect(rule, c10::DispatchKey::CPU);
  }
  if (!substrate().computes_at_once()) {
    arranged = c10::KernelFunction::makeFromBoxedFunctor(
        std::make_unique<Arranged>(rule, own == nullptr ? c10::KernelFunction() : own(rule), reads_memory));
    plain = !reads_memory && !is_looked_at(rule) && substrate().computes_plainly(rule, /*by_its_kernels=*/own == nullptr);
  }
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

namespace {

// Of typed kernels, for the operators that make up most training steps. That of the calling thread; a new one while somebody else holds it or its memory.
const at::Tensor& float_number() {
  thread_local at::Tensor number;  // written again for each call
  if (C10_UNLIKELY(!number.defined() || number.use_count() != 1 || number.storage().use_count() != 1)) {
    number = at::Tensor(at::detail::empty_cpu({}, c10::ScalarType::Float));
    number.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return number;
}

}  // namespace

// Half-precision kernels take the number as it is, so only float32 is cast early.
const at::Tensor* number_in_dtype_of(const at::Tensor& tensor, const at::Tensor& number) {
  if (!number.unsafeGetTensorImpl()->is_wrapped_number() || !number.is_cpu() || !tensor.is_cpu() ||
      tensor.scalar_type() != c10::ScalarType::Float || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return nullptr;
  }
  float value;
  if (number.scalar_type() == c10::ScalarType::Double) {
    value = static_cast<float>(*number.const_data_ptr<double>());
  } else if (number.scalar_type() == c10::ScalarType::Long) {
    value = static_cast<float>(*number.const_data_ptr<int64_t>());
  } else {
    return nullptr;
  }
  const at::Tensor& in_float = float_number();
  *static_cast<float*>(in_float.unsafeGetTensorImpl()->mutable_data()) = value;
  return &in_float;
}

void add_step_kernels(KernelTable& table) {
  add_typed_kernels(table);
}

}  // namespace anymps
