// One call of the CPU fallback, step by step.
#include "kernels/computed/fallback.h"

#include "device/device.h"
#include "kernels/redirect/boxed_arguments.h"
#include "recorder/recorder.h"

#include <ATen/TracerMode.h>
#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>

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

}  // namespace anymps
