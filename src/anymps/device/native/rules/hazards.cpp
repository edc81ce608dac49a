// Which known faults concern which operator.
#include "rules/hazards.h"

#include "rules/hazard_checks.h"
#include "rules/rule_list.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <utility>

namespace anymps {

// The hazards of one operator, with the places of the arguments that their checks ask for.
struct OperatorHazards {
  struct Item {
    const HazardRow* row;
    bool (*applies)(const hazard_checks::Seen&);
    hazard_checks::Places places;
  };
  c10::SmallVector<Item, 3> items;
};

namespace {

// anymps.rules.Check, where there is more to it than a condition: what this one spoils shows only where it is read again.
constexpr const char* kNarrowingCopy = "narrowing_copy";

using hazard_checks::checks;
using hazard_checks::Seen;

struct InForce {
  std::deque<std::vector<HazardRow>> rows;            // addresses stay: kernels hold them
  std::deque<std::unique_ptr<OperatorHazards>> held;  // the same
};

// Those that no operator's arguments show: only the values do (kernels/checks/limit_checks.cpp), or the call is no operator.
constexpr const char* kAskedForByName[] = {"zero_divisors", "event_hangs", "event_may_hang", "host_cache"};

InForce& hazards() {
  static auto* the_hazards = new InForce;
  return *the_hazards;
}

hazard_checks::Places places_of(const Rule& rule, const hazard_checks::CheckKind& kind) {
  hazard_checks::Places places{-1, -1, -1, -1};
  const auto& arguments = rule.op.schema().arguments();
  for (size_t role = 0; role < kind.roles.size(); ++role) {
    for (const char* name : kind.roles[role]) {
      for (size_t i = 0; i < arguments.size() && places[role] < 0; ++i) {
        if (arguments[i].name() == name) {
          places[role] = static_cast<int8_t>(i);
        }
      }
    }
  }
  return places;
}

// The condition that a row names. Raises if there is none of that name.
const hazard_checks::CheckKind& kind_of(const HazardRow& row) {
  const auto found = checks().find(row.check);
  TORCH_CHECK(
      found != checks().end(), "anymps: the native core has no condition \"", row.check, "\" for ", row.id,
      " (rules/hazard_checks.cpp)");
  return found->second;
}

bool concerns(const HazardRow& row, const Rule& rule) {
  if (row.family >= 0) {
    return rule.family == row.family && (rule.flags & kDense);
  }
  return std::find(row.operators.begin(), row.operators.end(), base_name(rule.op.operator_name().name)) != row.operators.end();
}

}  // namespace

void set_hazards(std::vector<HazardRow> rows) {
  InForce& h = hazards();
  h.rows.push_back(std::move(rows));
  for (const HazardRow& row : h.rows.back()) {
    if (std::find(std::begin(kAskedForByName), std::end(kAskedForByName), row.check) == std::end(kAskedForByName)) {
      kind_of(row);
    }
  }
  each_rule([&](Rule& rule) {
    auto mine = std::make_unique<OperatorHazards>();
    for (const HazardRow& row : h.rows.back()) {
      if (concerns(row, rule)) {
        const hazard_checks::CheckKind& kind = kind_of(row);
        mine->items.push_back({&row, kind.applies, places_of(rule, kind)});
      }
    }
    rule.hazards = mine->items.empty() ? nullptr : mine.get();
    if (rule.hazards != nullptr) {
      h.held.push_back(std::move(mine));
    }
  });
}

void each_hazard(const Rule& rule, c10::ArrayRef<Operand> operands, c10::function_ref<void(const HazardRow&)> found) {
  for (const OperatorHazards::Item& item : rule.hazards->items) {
    if (C10_UNLIKELY(item.applies(Seen(*item.row, item.places, operands)))) {
      found(*item.row);
    }
  }
}

Unboxing::Unboxing(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments) {
    operands_.push_back(of(value));
  }
}

Operand Unboxing::of(const c10::IValue& value) {
  if (value.isTensor()) {
    return Operand(value.toTensor());
  }
  if (value.isTensorList()) {
    tensors_.push_back(value.toTensorVector());
    return Operand(at::TensorList(tensors_.back()));
  }
  if (value.isBoolList()) {
    Operand mask;
    mask.kind = Operand::Kind::Mask;
    mask.mask = 0;
    for (const bool bit : value.toBoolList()) {
      mask.mask |= static_cast<uint64_t>(bit) << mask.count++;
    }
    return mask;
  }
  if (value.isIntList()) {
    sizes_.emplace_back();
    for (const int64_t size : value.toIntList()) {
      sizes_.back().emplace_back(size);
    }
    return Operand(c10::SymIntArrayRef(sizes_.back()));
  }
  if (value.isDoubleList()) {
    numbers_.push_back(value.toDoubleVector());
    return Operand(c10::ArrayRef<double>(numbers_.back()));
  }
  if (value.isBool()) {
    return Operand(value.toBool());
  }
  if (value.isInt()) {
    return Operand(value.toInt());
  }
  return value.isDouble() ? Operand(value.toDouble()) : Operand();
}

const HazardRow* refused_by_hazard(const Rule& rule, c10::ArrayRef<Operand> operands) {
  const HazardRow* refused = nullptr;
  each_hazard(rule, operands, [&](const HazardRow& row) {
    refused = refused == nullptr && !shows_later(row) && !row.text.empty() ? &row : refused;
  });
  return refused;
}

bool shows_later(const HazardRow& row) {
  return row.check == kNarrowingCopy;
}

std::vector<std::string> hazards_of(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  std::vector<std::string> ids;
  if (rule.hazards != nullptr) {
    each_hazard(rule, Unboxing(arguments).operands(), [&](const HazardRow& row) { ids.push_back(row.id); });
  }
  return ids;
}

const HazardRow* hazard_named(const char* check) {
  const auto& rows = hazards().rows;
  if (rows.empty()) {
    return nullptr;
  }
  const auto found = std::find_if(rows.back().begin(), rows.back().end(), [&](const HazardRow& row) { return row.check == check; });
  return found == rows.back().end() ? nullptr : &*found;
}

const HazardRow* event_hazard(const EventUse& last) {
  if (!last.timing || !last.recorded || last.measured) {
    return hazard_named("event_hangs");
  }
  return last.synchronized ? hazard_named("event_may_hang") : nullptr;
}

}  // namespace anymps
