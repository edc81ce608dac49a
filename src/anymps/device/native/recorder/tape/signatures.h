// What an operator was given and made: dtypes, sizes and devices, each combination told once and numbered.
#pragma once

#include "rules/rules.h"
#include "recorder/tape/form.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>
#include <string>
#include <vector>

namespace anymps {

struct SignatureText {
  uint32_t id, op;
  uint8_t fate;
  std::string inputs, outputs;  // JSON lists
  std::string form;             // a JSON object
};

namespace signatures {

// The number of a signature that `hash` stands for; the tensors are only looked at when it is new.
uint32_t intern(
    uint64_t hash,
    const Rule& rule,
    Fate fate,
    c10::ArrayRef<const c10::TensorImpl*> inputs,
    c10::ArrayRef<const c10::TensorImpl*> outputs,
    const Form& form = Form());

std::vector<SignatureText> take_new();
void forget_all();

}  // namespace signatures
}  // namespace anymps
