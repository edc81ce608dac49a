// Which calls reach mps, and what each of them writes.
#include "feeds/observer.h"

#include "feeds/observed_operators.h"
#include "feeds/raised_calls.h"
#include "recorder/recorder.h"

#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/python_variable.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>

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

PyObject* ask_raised = nullptr;  // guarded by the GIL
std::optional<at::CallbackHandle> handle;

struct Checked {
  std::mutex mutex;
  std::string first;
  uint32_t site = 0;
  bool any = false, same = true;
};
Checked& checked() {
  static auto* the_checked = new Checked;
  return *the_checked;
}

thread_local uint64_t calls_written = 0;
thread_local uint32_t calls_within = 0;  // of the call that is being written, as far as they came by here

// What is kept of a call while it runs.
struct Context : at::ObserverContext {
  virtual void ended(const std::vector<c10::IValue>& outputs) = 0;
};

// From this number of calls within one on it costs less to switch the observer off for them: each has its arguments and results
// boxed for it, and switching off and on takes as long as that for two calls.
constexpr uint32_t kMany = 3;

// Whether nobody but us watches operators on this thread.
bool is_alone() {
  const auto watching = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return watching.has_value() && watching->callbacks_.size() == 1;
}

// A call that is written. What belongs to it is part of it.
struct Call : Context {
  Call(const Operator& its_op, bool sparse) : op(its_op), span(std::in_place, its_op.rule, Span::By::Observer), any_sparse(sparse) {
    ++calls_written;
    calls_within = 0;
    if (op.calls_many.load(std::memory_order_relaxed) && is_alone()) {
      unseen.emplace();
    }
  }

  void ended(const std::vector<c10::IValue>& outputs) override;

  const Operator& op;
  std::optional<Span> span;
  std::optional<Muted> within = std::optional<Muted>(std::in_place);
  std::optional<at::DisableRecordFunctionGuard> unseen;
  c10::SmallVector<at::Tensor, 4> inputs;  // held: a boxed call gives its arguments away
  bool any_sparse, early = false, wide_complex = false;
  int exceptions = std::uncaught_exceptions();
};

template <class Each>
void each_tensor(const c10::IValue& value, const Each& each) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      each(value.toTensor());
    }
  } else if (value.isList() && !value.isIntList() && !value.isDoubleList() && !value.isBoolList()) {
    for (const c10::IValue& item : value.toListRef()) {
      if (item.isTensor() && item.toTensor().defined()) {
        each(item.toTensor());
      }
    }
  }
}

struct Looked {
  bool on_mps = false, sparse = false;
  DispatchKeySet keys;
};

Looked look(c10::ArrayRef<const c10::IValue> values) {
  Looked seen;
  for (const c10::IValue& value : values) {
    if (value.isDevice()) {
      seen.on_mps = seen.on_mps || value.toDevice().is_mps();
      continue;
    }
    each_tensor(value, [&](const at::Tensor& tensor) {
      seen.on_mps = seen.on_mps || tensor.device().is_mps();
      seen.sparse = seen.sparse || tensor.layout() != c10::Layout::Strided;
      seen.keys = seen.keys | tensor.key_set();
    });
  }
  return seen;
}

// Whether the call goes to somebody else first, who makes it again.
bool comes_again(const Operator& op, DispatchKeySet of_tensors) {
  const auto local = c10::impl::tls_local_dispatch_key_set();
  const DispatchKeySet keys = (of_tensors | local.included_) - local.excluded_;
  return keys.has_any(kAskedBefore) || (op.autocast && keys.has(DispatchKey::AutocastMPS));
}

bool is_wide(const c10::IValue& value, c10::ScalarType type) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().scalar_type() == type;
}

void begin_copy(Call& call, c10::ArrayRef<const c10::IValue> values) {
  const bool into_first = call.op.rule.name == "aten::copy_";
  const at::Tensor& destination = values[into_first ? 0 : 1].toTensor();
  const at::Tensor& source = values[into_first ? 1 : 0].toTensor();
  const bool non_blocking = values.size() > 2 && values[2].isBool() && values[2].toBool();
  const bool from = source.device().is_mps(), to = destination.device().is_mps();
  const Direction direction = !from ? Direction::CpuToMps : to ? Direction::MpsToMps : Direction::MpsToCpu;
  Span& span = *call.span;
  span.fate(Fate::Copy);
  for (const at::Tensor& tensor : {source, destination}) {
    span.input(tensor.unsafeGetTensorImpl());
    call.inputs.push_back(tensor);
  }
  if (direction != Direction::MpsToMps) {
    call.early = non_blocking && nonblocking::returns_early(destination, source);
    if (!call.early) {
      span.wait(to ? Wait::CopyToMps : Wait::CopyToCpu);
    }
  }
  span.moved(direction, static_cast<int64_t>(destination.nbytes()), call.early);
}

void begin_other(Call& call, c10::ArrayRef<const c10::IValue> values) {
  const Rule& rule = call.op.rule;
  Span& span = *call.span;
  span.fate(call.op.fate(call.any_sparse));
  const bool always = (rule.flags & kConditionalWait) == 0 || (rule.waits_if != nullptr && rule.waits_if(values));
  Wait wait = always ? rule.wait : Wait::None;
  for (size_t place = 0; place < values.size(); ++place) {
    each_tensor(values[place], [&](const at::Tensor& tensor) {
      span.input(tensor.unsafeGetTensorImpl());
      const Wait for_this = (rule.flags & kWaitsOnTensor) != 0 ? wait_for_tensor(rule, tensor, place) : Wait::None;
      wait = for_this != Wait::None ? for_this : wait;
      call.inputs.push_back(tensor);
    });
  }
  if (call.op.fate(call.any_sparse) != Fate::Native) {
    span.wait(Wait::Fallback);
  } else if (call.op.kind == Kind::Read) {
    span.wait(Wait::Item);
    span.moved(Direction::MpsToCpu, static_cast<int64_t>(call.inputs[0].element_size()), false);
  } else {
    span.wait(wait);
  }
}

// A copy of which nothing moves is no call of the device.
bool moves_nothing(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (op.kind != Kind::Copy || values.size() < 2 || !values[0].isTensor() || !values[1].isTensor()) {
    return op.kind == Kind::Copy;
  }
  const at::Tensor &first = values[0].toTensor(), &other = values[1].toTensor();
  return first.is_same(other) || first.numel() == 0 || other.numel() == 0 || first.is_meta() || other.is_meta();
}

void note_known_faults(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (op.kind == Kind::Copy && values[0].toTensor().is_mps()) {
    return;
  }
  for (const Rule* rule : {&op.rule, op.called_by}) {
    if (rule != nullptr && rule->hazards != nullptr) {
      note_faults(*rule, Unboxing(values).operands());
    }
  }
}

std::unique_ptr<Call> begin_call(const Operator& op, c10::ArrayRef<const c10::IValue> values, bool sparse) {
  raised_calls::forget();
  note_known_faults(op, values);
  auto call = std::make_unique<Call>(op, sparse);
  if (op.kind == Kind::Copy) {
    begin_copy(*call, values);
  } else {
    begin_other(*call, values);
  }
  for (const c10::IValue& value : values) {
    const bool is_double = is_wide(value, c10::ScalarType::Double) || (value.isInt() && value.toInt() == int64_t(c10::ScalarType::Double));
    if (is_double) {
      break;
    }
    call->wide_complex = call->wide_complex || is_wide(value, c10::ScalarType::ComplexDouble) ||
        (value.isInt() && value.toInt() == int64_t(c10::ScalarType::ComplexDouble));
  }
  return call;
}

// By way of Python: torch's wheels lack a header that those of torch.func include.
at::Tensor unwrapped(at::Tensor tensor) {
  while (tensor.key_set().has(DispatchKey::FuncTorchGradWrapper)) {
    GilGuard gil;
    PyObject* wrapper = THPVariable_Wrap(tensor);
    PyObject* functions = wrapper == nullptr ? nullptr : PyImport_ImportModule("torch._C._functorch");
    PyObject* plain = functions == nullptr ? nullptr : PyObject_CallMethod(functions, "get_unwrapped", "O", wrapper);
    const bool found = plain != nullptr && THPVariable_Check(plain);
    if (found) {
      tensor = THPVariable_Unpack(plain);
    }
    Py_XDECREF(plain);
    Py_XDECREF(functions);
    Py_XDECREF(wrapper);
    if (!found) {
      PyErr_Clear();
      break;
    }
  }
  return tensor;
}

c10::IValue unwrapped(const c10::IValue& value) {
  if (value.isTensor() && value.toTensor().defined()) {
    return unwrapped(value.toTensor());
  }
  if (!value.isTensorList()) {
    return value;
  }
  c10::List<at::Tensor> plain;
  for (const at::Tensor& tensor : value.toTensorVector()) {
    plain.push_back(tensor.defined() ? unwrapped(tensor) : tensor);
  }
  return plain;
}

// A call that goes to a transform of torch.func first. What the transform makes of it comes by here only where that is other
// operators; if none was written, this one is, when it is over.
struct Transformed : Context {
  Transformed(const Operator& its_op, c10::ArrayRef<const c10::IValue> its_values, bool its_sparse)
      : op(its_op), sparse(its_sparse), written(calls_written), exceptions(std::uncaught_exceptions()) {
    for (const c10::IValue& value : its_values) {
      values.push_back(unwrapped(value));
    }
  }
  void ended(const std::vector<c10::IValue>& outputs) override {
    if (written != calls_written) {
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
    ++calls_within;
    return nullptr;
  }
  const Operator* op = operator_of(function);
  if (op == nullptr || op->kind == Kind::View) {
    return nullptr;
  }
  const auto values = function.inputs();
  const Looked seen = look(values);
  if (!seen.on_mps || moves_nothing(*op, values)) {
    return nullptr;
  }
  if (op->composite && !op->is_listed(seen.sparse)) {
    return nullptr;  // the operators that it is made of count
  }
  if (comes_again(*op, seen.keys)) {
    if (c10::impl::tls_local_dispatch_key_set().included_.has(DispatchKey::FuncTorchDynamicLayerFrontMode)) {
      return std::make_unique<Transformed>(*op, values, seen.sparse);
    }
    return nullptr;
  }
  return begin_call(*op, values, seen.sparse);
}

// --- what became of it

c10::SmallVector<at::Tensor, 4> results_of(const Call& call, const std::vector<c10::IValue>& values) {
  c10::SmallVector<at::Tensor, 4> results;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i < call.op.fresh.size() ? call.op.fresh[i] : true) {
      each_tensor(values[i], [&](const at::Tensor& tensor) {
        if (tensor.device().is_mps()) {
          results.push_back(tensor);
        }
      });
    }
  }
  return results;
}

c10::SmallVector<const c10::TensorImpl*, 6> pointers(c10::ArrayRef<at::Tensor> tensors, bool strided_only) {
  c10::SmallVector<const c10::TensorImpl*, 6> result;
  for (const at::Tensor& tensor : tensors) {
    if (!strided_only || tensor.layout() == c10::Layout::Strided) {
      result.push_back(tensor.unsafeGetTensorImpl());
    }
  }
  return result;
}

void note_checked(const Operator& op) {
  if (!op.checks_indices) {
    return;
  }
  const uint32_t here = current_place();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.same = !c.any || (c.same && c.site == here);
  c.first = c.any ? c.first : op.rule.name;
  c.site = here;
  c.any = true;
}

void finish_copy(Call& call) {
  const at::Tensor &source = call.inputs[0], &destination = call.inputs[1];
  call.span->end(pointers(call.inputs, false), {});
  if (!source.device().is_mps()) {
    roundtrip::returned(source);
    note_copy_to_mps(source);
  } else if (!destination.device().is_mps()) {
    roundtrip::left(destination);
  }
  if (call.span->waits()) {
    waited();
  } else if (call.early && destination.device().is_mps()) {
    nonblocking::started_to_mps(source, source.scalar_type() != destination.scalar_type());
  } else if (call.early) {
    at::Tensor target = destination;
    nonblocking::started_to_cpu(target);
  }
}

void finish(Call& call, c10::ArrayRef<at::Tensor> results) {
  if (call.op.kind == Kind::Copy) {
    finish_copy(call);
    return;
  }
  buffers::see(results);
  if (call.op.resizes) {
    buffers::see(call.inputs);
  }
  if (call.op.kind == Kind::Allocation) {
    call.span.reset();  // allocations write no entry, but their buffers have a line
    const c10::ArrayRef<at::Tensor> made = results.empty() ? c10::ArrayRef<at::Tensor>(call.inputs) : results;
    if (!made.empty()) {
      tape::note_empty(call.op.rule, made[0].unsafeGetTensorImpl());
    }
    return;
  }
  const bool on_cpu = call.op.fate(call.any_sparse) != Fate::Native;
  if (on_cpu) {
    int64_t moved = 0;
    for (const c10::ArrayRef<at::Tensor> tensors : {c10::ArrayRef<at::Tensor>(call.inputs), results}) {
      for (const at::Tensor& tensor : tensors) {
        moved += tensor.device().is_mps() && !tensor.is_sparse() ? static_cast<int64_t>(tensor.nbytes()) : 0;
      }
    }
    call.span->moved(Direction::None, moved, false);
  }
  call.span->end(pointers(call.inputs, false), pointers(results, true));
  if (call.span->waits()) {
    waited();
  }
  if (!on_cpu) {
    note_checked(call.op);
  }
}

// Asks Python what an exception means.
Answer ask(
    const std::string& operator_name, PyObject* exception, c10::ArrayRef<at::Tensor> inputs, bool wide_complex, const tape::Place& place) {
  PyObject* tensors = PyList_New(0);
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      PyObject* item = THPVariable_Wrap(tensor);
      PyList_Append(tensors, item);
      Py_XDECREF(item);
    }
  }
  PyObject* answer = nullptr;
  {
    const NoDynamo none;
    answer = PyObject_CallFunction(
        ask_raised, "sOOOIO", operator_name.c_str(), exception, tensors, wide_complex ? Py_True : Py_False, place.site,
        place.backward ? Py_True : Py_False);
  }
  Py_DECREF(tensors);
  if (answer == nullptr) {
    PyErr_WriteUnraisable(ask_raised);
    return Answer::Raised;
  }
  const long number = PyLong_AsLong(answer);
  Py_DECREF(answer);
  PyErr_Clear();
  return static_cast<Answer>(number);
}

// What is left of a call that raised, until its exception has arrived in Python.
struct Raised {
  Raised(const Operator& its_op, Span its_span, c10::SmallVector<at::Tensor, 4> its_inputs, bool wide)
      : op(its_op), span(std::move(its_span)), inputs(std::move(its_inputs)), wide_complex(wide) {}
  ~Raised() {
    if (span.has_value() && op.kind != Kind::Allocation) {
      span->raised();  // nobody has told what it was
    }
  }
  void found(PyObject* exception) {
    const Answer answer = ask_raised == nullptr ? Answer::Raised : ask(op.rule.name, exception, inputs, wide_complex, place);
    if (answer == Answer::Refused || answer == Answer::Foreign) {
      span.reset();
    } else if (answer == Answer::Late) {
      span->end(pointers(inputs, false), {});
      if (span->waits()) {
        waited();
      }
      span.reset();
    }
  }
  const Operator& op;
  std::optional<Span> span;
  c10::SmallVector<at::Tensor, 4> inputs;
  const bool wide_complex;
  const tape::Place place = tape::here();
};

void Call::ended(const std::vector<c10::IValue>& outputs) {
  within.reset();
  unseen.reset();
  if (calls_within >= kMany && !op.calls_many.load(std::memory_order_relaxed)) {
    op.calls_many.store(true, std::memory_order_relaxed);
  }
  if (!observed()) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions) {
    auto raised = std::make_shared<Raised>(op, *std::move(span), std::move(inputs), wide_complex);
    raised_calls::expect([raised](PyObject* exception) { raised->found(exception); });
    return;
  }
  finish(*this, results_of(*this, outputs));
}

void after(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context != nullptr) {
    static_cast<Context*>(context)->ended(function.outputs());
  }
}

}  // namespace

void start(PyObject* raised) {
  stop();
  ask_raised = raised == Py_None ? nullptr : Py_NewRef(raised);
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
  Py_CLEAR(ask_raised);
}

void waited() {
  nonblocking::waited();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.any = false;
}

std::pair<std::string, uint32_t> take_checked() {
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  const bool any = std::exchange(c.any, false);
  return any ? std::make_pair(c.first, c.same ? c.site : 0) : std::make_pair(std::string(), uint32_t(0));
}

}  // namespace anymps::observer
