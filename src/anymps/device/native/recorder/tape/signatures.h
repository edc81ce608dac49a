// What an operator was given and made: dtypes, sizes and devices, each combination told once and numbered.
#pragma once

#include "rules/rules.h"

#include <ATen/core/ivalue.h>
#include <c10/core/SymInt.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>
#include <c10/util/OptionalArrayRef.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace anymps {

// What a signature says beside dtypes and sizes: how the inputs lie in memory, the axes, and how a convolution goes over its input.
// Plain data, as each call has one.
struct Form {
  static constexpr size_t kMost = 4;  // inputs whose layout is told, and numbers of one argument
  static constexpr size_t kLayoutBits = 3;
  enum Layout : uint8_t { Contiguous, Transposed, ChannelsLast, Other, Rows };

  struct Numbers {
    std::array<int32_t, kMost> values;
    uint8_t count = 0;
    bool whole = true;  // all of them are here

    void add(int64_t value) {
      whole = whole && count < kMost && value == static_cast<int32_t>(value);
      if (whole) {
        values[count++] = static_cast<int32_t>(value);
      }
    }
    bool told() const {
      return whole && count > 0;
    }
  };

  uint16_t layouts = 0;  // kLayoutBits for each of the first inputs
  uint8_t tensors = 0;  // inputs so far
  Numbers axes, stride, dilation, groups;

  void input(const c10::TensorImpl* tensor) {
    if (tensors < kMost && has_strides(tensor) && C10_UNLIKELY(!tensor->is_contiguous())) {
      layouts |= static_cast<uint16_t>(layout_of(tensor) << (kLayoutBits * tensors));
    }
    ++tensors;
  }
  bool plain() const {
    return layouts == 0 && axes.count == 0 && stride.count == 0 && dilation.count == 0 && groups.count == 0;
  }
  void take(const FormArguments& places, c10::ArrayRef<c10::IValue> arguments);
  Numbers* of(const FormArguments& places, size_t position) {
    const auto place = static_cast<int>(position);
    return place == places.axes       ? &axes
           : place == places.stride   ? &stride
           : place == places.dilation ? &dilation
           : place == places.groups   ? &groups
                                      : nullptr;
  }
  // Axes counted from the end become those of an input with so many.
  void settle(int64_t rank);
  uint64_t mixed_into(uint64_t hash) const;
  std::string text() const;  // a JSON object, `{}` for a plain one

  static bool has_strides(const c10::TensorImpl* tensor) {
    return C10_LIKELY(!tensor->key_set().has_any(c10::sparse_ks | c10::sparse_csr_ks | c10::python_ks));
  }
  static Layout layout_of(const c10::TensorImpl* tensor);
};

// The numbers of one argument; those of other types have none.
template <class T>
void note_numbers(Form::Numbers&, const T&) {}
inline void note_numbers(Form::Numbers& numbers, const int64_t& value) {
  numbers.add(value);
}
inline void note_numbers(Form::Numbers& numbers, const std::optional<int64_t>& value) {
  if (value.has_value()) {
    numbers.add(*value);
  }
}
inline void note_numbers(Form::Numbers& numbers, const c10::IntArrayRef& values) {
  for (const int64_t value : values) {
    numbers.add(value);
  }
}
inline void note_numbers(Form::Numbers& numbers, const c10::OptionalArrayRef<int64_t>& values) {
  if (values.has_value()) {
    note_numbers(numbers, *values);
  }
}
inline void note_numbers(Form::Numbers& numbers, const c10::SymInt& value) {
  if (const std::optional<int64_t> known = value.maybe_as_int()) {
    numbers.add(*known);
  } else {
    numbers.whole = false;
  }
}
inline void note_numbers(Form::Numbers& numbers, const c10::SymIntArrayRef& values) {
  for (const c10::SymInt& value : values) {
    note_numbers(numbers, value);
  }
}

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
