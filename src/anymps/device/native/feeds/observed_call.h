// A call that is written: begun with its inputs, ended with its results.
#pragma once

#include "feeds/observed_operators.h"
#include "recorder/recorder.h"

#include <ATen/core/Tensor.h>
#include <ATen/record_function.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace anymps::observer {

// What is kept of a call while it runs.
struct Context : at::ObserverContext {
  virtual void ended(const std::vector<c10::IValue>& outputs) = 0;
};

// What belongs to it is part of it.
struct Call : Context {
  Call(const Operator& its_op, bool sparse);

  void ended(const std::vector<c10::IValue>& outputs) override;

  const Operator& op;
  std::optional<Span> span;
  std::optional<Muted> within = std::optional<Muted>(std::in_place);
  std::optional<at::DisableRecordFunctionGuard> unseen;
  c10::SmallVector<at::Tensor, 4> inputs;  // held: a boxed call gives its arguments away
  bool any_sparse, early = false, wide_complex = false;
  int exceptions = std::uncaught_exceptions();
};

// Ends, on the calling thread, what was expected of an earlier call's exception.
std::unique_ptr<Call> begin_call(const Operator& op, c10::ArrayRef<const c10::IValue> values, bool sparse);

// How many calls the thread has written.
uint64_t calls_written();

// A call within the one that is being written has come by.
void note_call_within();

}  // namespace anymps::observer
