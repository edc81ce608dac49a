// What a condition sees of a call: its row, and each argument as far as a condition may ask for it.
#pragma once

#include "rules/rule.h"

#include <ATen/core/IListRef.h>
#include <ATen/core/Tensor.h>
#include <c10/core/SymIntArrayRef.h>
#include <c10/util/ArrayRef.h>

#include <array>
#include <optional>
#include <string>
#include <vector>

namespace anymps {

// One row of anymps.rules.hazard_table().
struct HazardRow {
  std::string id;  // of the rule that tells of it
  std::string check;  // anymps.rules.Check: how a call is recognised
  int64_t low, high;
  std::vector<std::string> operators;  // base names: "mm"
  int family;                          // or all operators of this family; -1: none
  ErrorClass error;
  std::string text;  // raised, if there is one
};

// One argument of a call, as far as a hazard may ask for it.
struct Operand {
  enum class Kind : uint8_t { None, Tensor, Tensors, TensorRefs, Number, Numbers, Sizes, Mask };
  Kind kind = Kind::None;
  uint32_t count = 0;
  union {
    const c10::TensorImpl* tensor;
    const at::Tensor* tensors;
    const at::ITensorListRef* refs;
    const c10::SymInt* sizes;
    double number = 0;
    const double* numbers;
    uint64_t mask;
  };

  Operand() = default;
  Operand(const at::Tensor& value) {
    if (value.defined()) {
      kind = Kind::Tensor;
      tensor = value.unsafeGetTensorImpl();
    }
  }
  Operand(const std::optional<at::Tensor>& value) : Operand(value.has_value() ? Operand(*value) : Operand()) {}
  Operand(at::TensorList value) : kind(Kind::Tensors), count(static_cast<uint32_t>(value.size())), tensors(value.data()) {}
  Operand(const at::ITensorListRef& value) : kind(Kind::TensorRefs), count(static_cast<uint32_t>(value.size())), refs(&value) {}
  Operand(double value) : kind(Kind::Number), number(value) {}
  Operand(bool value) : Operand(static_cast<double>(value)) {}
  Operand(int64_t value) : Operand(static_cast<double>(value)) {}
  Operand(const c10::SymInt& value) : Operand(static_cast<double>(value.expect_int())) {}
  Operand(c10::ArrayRef<double> value) : kind(Kind::Numbers), count(static_cast<uint32_t>(value.size())), numbers(value.data()) {}
  Operand(c10::SymIntArrayRef value) : kind(Kind::Sizes), count(static_cast<uint32_t>(value.size())), sizes(value.data()) {}
  template <size_t N>
  Operand(const std::array<bool, N>& value) : kind(Kind::Mask), count(N), mask(0) {
    for (size_t i = 0; i < N; ++i) {
      mask |= static_cast<uint64_t>(value[i]) << i;
    }
  }
};

template <class T>
Operand operand_of(const T& value) {
  if constexpr (std::is_constructible_v<Operand, const T&>) {
    return Operand(value);
  } else if constexpr (std::is_same_v<T, at::IntArrayRef>) {
    return Operand(c10::fromIntArrayRefUnchecked(value));
  } else if constexpr (std::is_same_v<T, at::OptionalIntArrayRef>) {
    return value.has_value() ? Operand(c10::fromIntArrayRefUnchecked(*value)) : Operand();
  } else {
    return Operand();
  }
}

}  // namespace anymps
