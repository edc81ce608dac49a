// Marks of known faults.
#include "recorder/tape/faults.h"

#include "recorder/lines/call_sites.h"
#include "recorder/tape/marks.h"
#include "recorder/copies/overwritten.h"
#include "recorder/lines/places.h"
#include "recorder/program/progress.h"
#include "recorder/program/python_bridge.h"

namespace anymps {
namespace {

std::string mark_of(const HazardRow& row, const std::string& call) {
  return "anymps::hazard." + row.id + " " + call;
}

}  // namespace

void note_fault(const HazardRow& row, const std::string& call) {
  tape::note_hazard(mark_rule(mark_of(row, call)));
  if (observed()) {
    tell_of_fault(row.id, current_place());
  }
}

const HazardRow* note_faults(const Rule& rule, c10::ArrayRef<Operand> operands) {
  const HazardRow* refused = nullptr;
  each_hazard(rule, operands, [&](const HazardRow& row) {
    if (refused != nullptr) {
      return;
    }
    if (!shows_later(row)) {
      note_fault(row, rule.name);
      refused = row.text.empty() ? nullptr : &row;
    } else if (recording() && !muted()) {
      overwritten::remember(operands[1].tensor, mark_of(row, rule.name), current_site());
    }
  });
  return refused;
}

}  // namespace anymps
