// Alerts about kernels without a deterministic implementation.
#include "device/calls/determinism.h"

#include "device/errors/refusals.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace anymps {
namespace {

bool is_inexact(const c10::IValue& value) {
  if (!value.isTensor()) {
    return false;
  }
  const auto type = value.toTensor().scalar_type();
  return c10::isFloatingType(type) || c10::isComplexType(type);
}

bool applies(const Rule& rule, c10::ArrayRef<c10::IValue> values) {
  const Alert& alert = *rule.alert;
  if (alert.floating && (values.empty() || !is_inexact(values[0]))) {
    return false;
  }
  if (alert.argument.empty()) {
    return true;
  }
  const auto& arguments = rule.op.schema().arguments();
  for (size_t i = 0; i < values.size(); ++i) {
    if (arguments[i].name() == alert.argument) {
      const std::string given = values[i].isString() ? values[i].toStringRef()
          : values[i].isBool()                       ? (values[i].toBool() ? "True" : "False")
                                                     : "";
      return std::find(alert.values.begin(), alert.values.end(), given) != alert.values.end();
    }
  }
  return false;
}

}  // namespace

AlertScope::AlertScope(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  auto& context = at::globalContext();
  if (rule.alert->name.empty()) {
    warn_only_ = context.deterministicAlgorithmsWarnOnly();
    silenced_ = true;
    context.setDeterministicAlgorithms(false, warn_only_);
    return;
  }
  if (!applies(rule, arguments)) {
    return;
  }
  std::string message;
  try {
    context.alertNotDeterministic(rule.alert->name);
    return;  // it was a warning
  } catch (const c10::Error& error) {
    message = error.what_without_backtrace();
  }
  refuse(Refusal::Determinism, rule, ErrorClass::Runtime, message);
}

AlertScope::~AlertScope() {
  if (silenced_) {
    at::globalContext().setDeterministicAlgorithms(true, warn_only_);
  }
}

}  // namespace anymps
