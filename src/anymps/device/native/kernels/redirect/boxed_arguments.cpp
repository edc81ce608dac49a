// Lists among the arguments of a boxed call.
#include "kernels/redirect/boxed_arguments.h"

namespace anymps {

void settle_optional_lists(const Rule& rule, torch::jit::Stack& stack, size_t first) {
  for (size_t i = 0; (rule.optional_lists >> i) != 0; ++i) {
    c10::IValue& value = stack[first + i];
    if (!((rule.optional_lists >> i) & 1) || !value.isList() || value.isOptionalTensorList()) {
      continue;
    }
    c10::List<std::optional<at::Tensor>> settled;
    for (const c10::IValue& item : value.toListRef()) {
      settled.push_back(item.isTensor() ? std::optional<at::Tensor>(item.toTensor()) : std::nullopt);
    }
    value = std::move(settled);
  }
}

bool holds_tensors(const c10::List<c10::IValue>& list) {
  for (const c10::IValue& item : list) {
    if (item.isTensor()) {
      return true;
    }
  }
  return false;
}

}  // namespace anymps
