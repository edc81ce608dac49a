// The arguments and results of a boxed call: every tensor among them found and replaced.
#pragma once

#include "device/device.h"
#include "rules/rules.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

namespace anymps {

inline bool is_written(const Rule& rule, size_t argument) {
  return argument < 64 && ((rule.writes >> argument) & 1);
}

// TorchScript's interpreter brings indices as a list of tensors, or of optional tensors under a type of its own, which
// IValue does not take for the C++ one. The arguments begin at `first`.
inline void settle_optional_lists(const Rule& rule, torch::jit::Stack& stack, size_t first) {
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

inline bool holds_tensors(const c10::List<c10::IValue>& list) {
  for (const c10::IValue& item : list) {
    if (item.isTensor()) {
      return true;
    }
  }
  return false;
}

// Replaces every tensor among the arguments with what `convert(tensor, written, position)` gives for it, and the device of
// type `from` with `device`.
template <class Convert>
void convert_arguments(
    const Rule& rule,
    c10::ArrayRef<c10::Argument> schema,
    torch::jit::Stack& stack,
    Convert&& convert,
    c10::Device device = c10::DeviceType::CPU,
    c10::DeviceType from = c10::DeviceType::MPS) {
  const size_t begin = stack.size() - schema.size();
  for (size_t i = 0; i < schema.size(); ++i) {
    c10::IValue& value = stack[begin + i];
    const bool written = is_written(rule, i);
    if (value.isList() && !value.isTensorList() && !value.isOptionalTensorList() && holds_tensors(value.toList())) {
      c10::List<c10::IValue> converted(value.toList().elementType());
      for (const c10::IValue& item : value.toList()) {
        converted.push_back(item.isTensor() ? c10::IValue(convert(item.toTensor(), written, i)) : item);
      }
      value = std::move(converted);
    } else if (value.isDevice() && value.toDevice().type() == from) {
      value = device;
    } else {
      replace_tensors(value, [&](const at::Tensor& tensor) { return convert(tensor, written, i); });
    }
  }
}

// The results begin at `first`; `convert(result, index)` takes each tensor, with the number of the result it is in.
template <class Convert>
void convert_results(torch::jit::Stack& stack, size_t first, Convert&& convert) {
  for (size_t i = first; i < stack.size(); ++i) {
    c10::IValue& value = stack[i];
    if (value.isTensor()) {
      at::Tensor result = std::move(value).toTensor();
      value = convert(std::move(result), i - first);
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> converted;
      std::vector<at::Tensor> items = std::move(value).toTensorVector();
      value = c10::IValue();
      for (at::Tensor& item : items) {
        converted.push_back(convert(std::move(item), i - first));
      }
      value = std::move(converted);
    }
  }
}

}  // namespace anymps
