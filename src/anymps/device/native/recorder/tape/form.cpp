// Forms as numbers of a hash and as the text of a signature.
#include "recorder/tape/form.h"

#include "recorder/program/progress.h"

namespace anymps {
namespace {

constexpr std::array<const char*, 4> kLayouts{"contiguous", "transposed", "channels_last", "other"};

uint64_t mix_numbers(uint64_t hash, const Form::Numbers& numbers) {
  hash = mix(hash, numbers.told() ? numbers.count : 0);
  for (size_t i = 0; numbers.told() && i < numbers.count; ++i) {
    hash = mix(hash, static_cast<uint32_t>(numbers.values[i]));
  }
  return hash;
}

void begin_member(std::string& text, const char* name) {
  text += text.size() > 1 ? ", \"" : "\"";
  text += name;
  text += "\": [";
}

void tell_numbers(std::string& text, const char* name, const Form::Numbers& numbers) {
  if (!numbers.told()) {
    return;
  }
  begin_member(text, name);
  for (size_t i = 0; i < numbers.count; ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(numbers.values[i]);
  }
  text += ']';
}

}  // namespace

Form::Layout Form::layout_of(const c10::TensorImpl* tensor) {
  if (tensor->is_strides_like_channels_last() || tensor->is_strides_like_channels_last_3d()) {
    return ChannelsLast;
  }
  int64_t last = 0;
  for (int64_t axis = 0; axis < tensor->dim(); ++axis) {
    const int64_t stride = tensor->stride(axis);
    if (tensor->size(axis) < 2 || stride == 0) {
      continue;
    }
    if (last != 0 && stride > last) {
      return Transposed;
    }
    last = stride;
  }
  return Other;
}

void Form::take(const FormArguments& places, c10::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    Numbers* numbers = of(places, i);
    if (numbers == nullptr) {
      continue;
    }
    const c10::IValue& value = arguments[i];
    if (value.isInt()) {
      numbers->add(value.toInt());
    } else if (value.isIntList()) {
      note_numbers(*numbers, c10::IntArrayRef(value.toIntVector()));
    }
  }
}

void Form::settle(int64_t rank) {
  for (size_t i = 0; i < axes.count; ++i) {
    if (axes.values[i] < 0) {
      axes.values[i] += static_cast<int32_t>(rank);
    }
  }
}

uint64_t Form::mixed_into(uint64_t hash) const {
  hash = mix(hash, layouts);
  for (const Numbers* numbers : {&axes, &stride, &dilation, &groups}) {
    hash = mix_numbers(hash, *numbers);
  }
  return hash;
}

std::string Form::text() const {
  std::string text = "{";
  if (layouts != 0) {
    begin_member(text, "layout");
    for (size_t i = 0; i < tensors && i < kMost; ++i) {
      text += (i == 0 ? "\"" : ", \"") + std::string(kLayouts[(layouts >> (2 * i)) & 3]) + '"';
    }
    text += ']';
  }
  tell_numbers(text, "axes", axes);
  tell_numbers(text, "stride", stride);
  tell_numbers(text, "dilation", dilation);
  tell_numbers(text, "groups", groups);
  return text + '}';
}

}  // namespace anymps
