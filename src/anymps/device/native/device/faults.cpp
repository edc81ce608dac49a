// What a fault with a text raises.
#include "device/faults.h"

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
  if (const HazardRow* row = event_hazard(last)) {
    if (told_by_device()) {
      note_fault(*row, "torch.mps.Event.elapsed_time");
    }
    raise_fault(*row);
  }
}

}  // namespace anymps
