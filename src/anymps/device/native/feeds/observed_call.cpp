// What each kind of call writes.
#include "feeds/observed_call.h"

#include "feeds/observed_exceptions.h"
#include "feeds/observed_values.h"

#include <utility>

namespace anymps::observer {
namespace {

thread_local uint64_t written = 0;
thread_local uint32_t calls_within = 0;  // of the call that is being written, as far as they came by here

// Whether nobody but us watches operators on this thread.
bool is_alone() {
  const auto watching = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  return watching.has_value() && watching->callbacks_.size() == 1;
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
  if (rule.form.any()) {
    span.form().take(rule.form, values);
  }
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

void note_known_faults(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (op.kind == Kind::Copy && values[0].toTensor().is_mps() && !values[1].toTensor().is_mps()) {
    return;
  }
  for (const Rule* rule : {&op.rule, op.called_by}) {
    if (rule != nullptr && rule->hazards != nullptr) {
      note_faults(*rule, Unboxing(values).operands());
    }
  }
}

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

void finish_copy(Call& call) {
  const at::Tensor &source = call.inputs[0], &destination = call.inputs[1];
  call.span->end(pointers(call.inputs), {});
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
  call.span->end(pointers(call.inputs), pointers(results, /*strided_only=*/true));
  if (call.span->waits()) {
    waited();
  }
  if (!on_cpu) {
    note_checked(call.op);
  }
}

}  // namespace

Call::Call(const Operator& its_op, bool sparse)
    : op(its_op), span(std::in_place, its_op.rule, Span::Source::Observer), any_sparse(sparse) {
  ++written;
  calls_within = 0;
  if (op.within.takes_many() && is_alone()) {
    unseen.emplace();
  }
}

std::unique_ptr<Call> begin_call(const Operator& op, c10::ArrayRef<const c10::IValue> values, bool sparse) {
  forget_exception();
  note_known_faults(op, values);
  auto call = std::make_unique<Call>(op, sparse);
  if (op.kind == Kind::Copy) {
    begin_copy(*call, values);
  } else {
    begin_other(*call, values);
  }
  call->wide_complex = has_wide_complex(values);
  return call;
}

void Call::ended(const std::vector<c10::IValue>& outputs) {
  within.reset();
  if (!unseen.has_value()) {
    op.within.counted(calls_within);
  }
  unseen.reset();
  if (!observed()) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions) {
    expect_exception(op, *std::move(span), std::move(inputs), wide_complex);
    return;
  }
  finish(*this, results_of(*this, outputs));
}

uint64_t calls_written() {
  return written;
}

void note_call_within() {
  ++calls_within;
}

}  // namespace anymps::observer
