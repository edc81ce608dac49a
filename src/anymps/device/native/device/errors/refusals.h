// The one way to raise the real backend's errors, so that each is in a recording.
#pragma once

#include "rules/rules.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <array>
#include <cstdint>
#include <string>

namespace anymps {

// Notes the refusal on the tape (with the tensor that caused it, if there is one) and throws the torch exception.
// The one way to raise what MPS says: whatever goes by it is in a recording, with its line.
[[noreturn]] void refuse(
    Refusal kind,
    const Rule& rule,
    ErrorClass error,
    const std::string& message,
    const at::Tensor& culprit = {});

// How many there have been on this thread: to tell a refusal from an error of a kernel.
uint64_t refusals_of_this_thread();

// Says of a failed assertion in the core's own code that it is a bug of anymps; any other error passes as it is. To be called
// where an error leaves a kernel of ours.
[[noreturn]] void rethrow_as_ours(const c10::Error& error);

// Raises the text of that name in OPERATOR_LIMITS, unless this release does not have it.
void refuse_limit(const Rule& rule, const char* name, const at::Tensor& culprit = {});

// Raises the text of the operator's family for a tensor that is not on mps, unless this operator takes it.
// `cpu_scalars` counts the 0-dim CPU tensors seen in this call; `sparse` tells the operator's sparse kernel from its dense one.
void check_foreign(const Rule& rule, const at::Tensor& tensor, size_t position, int& cpu_scalars, bool sparse);

// A call that meets a known fault of MPS: noted, and raised where a Mac would abort or refuse. Only for rules with hazards.
void meet_hazards(const Rule& rule, c10::ArrayRef<Operand> operands);

// The same from the typed arguments of a call, and from boxed ones.
template <class... Args>
void check_hazards(const Rule& rule, const Args&... args) {
  const std::array<Operand, sizeof...(Args)> operands{operand_of(args)...};
  meet_hazards(rule, operands);
}
void check_hazards(const Rule& rule, c10::ArrayRef<c10::IValue> arguments);

// The hazard, if there is one, of a call that is no operator.
void meet_hazard(const HazardRow* row, const char* call);

}  // namespace anymps
