// Which calls reach mps.
#include "feeds/observer.h"

#include "feeds/observed_call.h"
#include "feeds/observed_exceptions.h"
#include "feeds/observed_operators.h"
#include "feeds/observed_values.h"
#include "feeds/raised_calls.h"
#include "recorder/recorder.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace anymps::observer {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;

// Whoever has one of these keys is asked before the backend, and makes calls of its own that come by here again.
const DispatchKeySet kAskedBefore({
    DispatchKey::Python, DispatchKey::PythonDispatcher, DispatchKey::PythonTLSSnapshot, DispatchKey::PreDispatch,
    DispatchKey::Functionalize, DispatchKey::FuncTorchDynamicLayerFrontMode, DispatchKey::FuncTorchDynamicLayerBackMode,
    DispatchKey::FuncTorchBatched, DispatchKey::FuncTorchBatchedDecomposition, DispatchKey::FuncTorchVmapMode,
    DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched, DispatchKey::VmapMode,
});

std::optional<at::CallbackHandle> handle;

// What may take the call before it reaches the backend: a mode or key that makes it again, so that it is seen then, or one
// that may call the kernel itself, where nobody sees it.
enum class Intercepted { No, Redispatches, MayCallKernel };

Intercepted interception(const Operator& op, DispatchKeySet of_tensors) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet keys = (of_tensors | local.included_) - local.excluded_;
  const DispatchKeySet asked = keys & kAskedBefore;
  if (asked.empty() && !(op.autocast && keys.has(DispatchKey::AutocastMPS))) {
    return Intercepted::No;
  }
  // Inductor folds constants by torch's dispatcher in Python, which picks the kernel and calls it past this one.
  const bool picked = asked == DispatchKeySet(DispatchKey::PythonDispatcher);
  const bool transformed = local.included_.has(DispatchKey::FuncTorchDynamicLayerFrontMode);
  return picked || transformed ? Intercepted::MayCallKernel : Intercepted::Redispatches;
}

// A copy of which nothing moves is no call of the device.
bool moves_nothing(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (op.kind != Kind::Copy || values.size() < 2 || !values[0].isTensor() || !values[1].isTensor()) {
    return op.kind == Kind::Copy;
  }
  const at::Tensor &first = values[0].toTensor(), &other = values[1].toTensor();
  return first.is_same(other) || first.numel() == 0 || other.numel() == 0 || first.is_meta() || other.is_meta();
}

// A call that goes to a transform of torch.func or to torch's dispatcher in Python first. What is made of it comes by here only
// where that is other operators; if none was written, this one is, when it is over.
struct Transformed : Context {
  Transformed(const Operator& its_op, c10::ArrayRef<const c10::IValue> its_values, bool its_sparse)
      : op(its_op), sparse(its_sparse), written(calls_written()), exceptions(std::uncaught_exceptions()) {
    for (const c10::IValue& value : its_values) {
      values.push_back(unwrapped(value));
    }
  }
  void ended(const std::vector<c10::IValue>& outputs) override {
    if (written != calls_written()) {
      return;
    }
    const std::unique_ptr<Call> call = begin_call(op, c10::ArrayRef<const c10::IValue>(values.data(), values.size()), sparse);
    call->exceptions = exceptions;
    std::vector<c10::IValue> plain;
    for (const c10::IValue& value : outputs) {
      plain.push_back(unwrapped(value));
    }
    call->ended(plain);
  }
  const Operator& op;
  std::vector<c10::IValue> values;
  const bool sparse;
  const uint64_t written;
  const int exceptions;
};

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& function) {
  if (!observed()) {
    return nullptr;
  }
  if (muted()) {
    note_call_within();
    return nullptr;
  }
  const Operator* op = operator_of(function);
  if (op == nullptr || op->kind == Kind::View) {
    return nullptr;
  }
  const auto values = function.inputs();
  const TensorSummary seen = summarize(values);
  if (!seen.on_mps || moves_nothing(*op, values)) {
    return nullptr;
  }
  if (op->composite && !op->is_listed(seen.sparse)) {
    return nullptr;  // the operators that it is made of count
  }
  switch (interception(*op, seen.keys)) {
    case Intercepted::Redispatches:
      return nullptr;
    case Intercepted::MayCallKernel:
      return std::make_unique<Transformed>(*op, values, seen.sparse);
    case Intercepted::No:
      return begin_call(*op, values, seen.sparse);
  }
  return nullptr;
}

void after(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context != nullptr) {
    static_cast<Context*>(context)->ended(function.outputs());
  }
}

}  // namespace

void start(PyObject* raised) {
  stop();
  set_asked(raised == Py_None ? nullptr : raised);
  buffers::start();
  handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&before, &after).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

void stop() {
  if (handle.has_value()) {
    at::removeCallback(*handle);
    handle.reset();
  }
  raised_calls::forget();
  set_asked(nullptr);
}

}  // namespace anymps::observer
