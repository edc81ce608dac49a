// What a fault with a text raises.
#include "device/errors/faults.h"

#include "recorder/recorder.h"

#include <c10/util/Exception.h>

namespace anymps {
namespace {

void raise_fault(const HazardRow& row) {
  if (row.text.empty()) {
    return;
  }
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  if (row.error == ErrorClass::NotImplemented) {
    throw c10::NotImplementedError(here, row.text);
  }
  throw c10::Error(here, row.text);
}

// Of a call that is no operator.
void meet(const HazardRow* row, const char* call) {
  if (row == nullptr) {
    return;
  }
  if (told_by_device()) {
    note_fault(*row, call);
  }
  raise_fault(*row);
}

}  // namespace

void meet_hazards(const Rule& rule, c10::ArrayRef<Operand> operands) {
  if (const HazardRow* row = told_by_device() ? note_faults(rule, operands) : refused_by_hazard(rule, operands)) {
    raise_fault(*row);
  }
}

void check_hazards(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  meet_hazards(rule, Unboxing(arguments).operands());
}

void meet_event_hazard(const EventUse& last) {
  meet(event_hazard(last), "torch.mps.Event.elapsed_time");
}

void meet_host_cache_hazard() {
  meet(host_cache_hazard(), "torch.accelerator.empty_host_cache");
}

}  // namespace anymps
