// Which calls reach mps.
#include "feeds/feeds.h"

#include "feeds/observed_call.h"
#include "feeds/observed_exceptions.h"
#include "feeds/observed_operators.h"
#include "feeds/observed_values.h"
#include "recorder/recorder.h"

#include <ATen/record_function.h>

#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace anymps::observer {
namespace {

std::optional<at::CallbackHandle> handle;

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
  switch (reach_of(*op, values, seen)) {
    case Reach::Nothing:
    case Reach::Redispatches:
      return nullptr;
    case Reach::MayCallKernel:
      return std::make_unique<Transformed>(*op, values, seen.sparse);
    case Reach::Backend:
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
  forget_exception();
  set_asked(nullptr);
}

}  // namespace anymps::observer
