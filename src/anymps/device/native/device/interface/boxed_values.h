// Tensors inside the boxed value of an argument: each is found and replaced.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <utility>

namespace anymps {

// Replaces each tensor of a value, undefined ones too, with what `convert(tensor)` gives for it.
template <class Convert>
void replace_tensors(c10::IValue& value, Convert&& convert) {
  if (value.isTensor()) {
    value = convert(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<at::Tensor> converted;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      converted.push_back(convert(tensor));
    }
    value = std::move(converted);
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> converted;
    for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
      converted.push_back(tensor.has_value() ? std::optional<at::Tensor>(convert(*tensor)) : std::nullopt);
    }
    value = std::move(converted);
  }
}

}  // namespace anymps
