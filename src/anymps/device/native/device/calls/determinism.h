// torch.use_deterministic_algorithms: what MPS kernels alert about, which is not what CPU kernels alert about.
#pragma once

#include "rules/rules.h"

#include <ATen/Context.h>

namespace anymps {

// Whether a call has to be looked at: the rule has an alert, and the flag is on.
inline bool alerts(const Rule& rule) {
  return C10_UNLIKELY(rule.alert != nullptr) && at::globalContext().deterministicAlgorithms();
}

// For the time of one call that `alerts`: raises or warns as the MPS kernel does, and keeps the CPU kernel from doing so
// where MPS is silent. The flag is the process's: other threads run without it for as long.
class AlertScope {
 public:
  AlertScope(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);
  ~AlertScope();
  AlertScope(const AlertScope&) = delete;
  AlertScope& operator=(const AlertScope&) = delete;

 private:
  bool silenced_ = false;
  bool warn_only_ = false;
};

}  // namespace anymps
