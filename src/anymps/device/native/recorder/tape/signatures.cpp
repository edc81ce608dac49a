// The texts of signatures and their numbers; forms as numbers of a hash and as the text of a signature.
#include "recorder/tape/signatures.h"

#include "locks/locks.h"
#include "recorder/program/progress.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace anymps::signatures {
namespace {

constexpr size_t kMaxSignatures = size_t(1) << 17;  // beyond this, calls of one operator are no longer told apart by sizes
constexpr size_t kNamedTensors = 4;                 // of such a call

struct State {
  Mutex mutex;
  std::unordered_map<uint64_t, uint32_t> known;
  std::unordered_map<std::string, uint32_t> sizeless;  // signatures without sizes, by what they say
  std::vector<SignatureText> fresh;
};

State& state() {
  static State* the_state = new State;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

const char* dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    case c10::ScalarType::ComplexHalf: return "complex32";
    default: return c10::toString(type);
  }
}

std::string describe(c10::ArrayRef<const c10::TensorImpl*> tensors, bool with_sizes = true) {
  std::string text = "[";
  for (const auto* tensor : tensors) {
    if (text.size() > 1) {
      text += ", ";
    }
    text += '"';
    text += dtype_name(c10::typeMetaToScalarType(tensor->dtype()));
    text += '[';
    bool first = true;
    for (const int64_t size : with_sizes ? tensor->sizes() : c10::IntArrayRef()) {
      text += first ? "" : ", ";
      text += std::to_string(size);
      first = false;
    }
    text += with_sizes ? "]" : "...]";
    if (tensor->device().is_cpu()) {
      text += " on cpu";
    }
    text += '"';
  }
  return text + "]";
}

// Sizes that are ever new would fill the memory: from some number on an operator's calls differ by dtypes and devices only.
uint32_t intern_without_sizes(
    const Rule& rule, Fate fate, c10::ArrayRef<const c10::TensorImpl*> inputs, c10::ArrayRef<const c10::TensorImpl*> outputs) {
  State& s = state();
  const std::string given = describe(inputs.slice(0, std::min(inputs.size(), kNamedTensors)), false);
  const std::string made = describe(outputs.slice(0, std::min(outputs.size(), kNamedTensors)), false);
  const auto next = static_cast<uint32_t>(s.known.size() + s.sizeless.size() + 1);
  const std::string key = std::to_string(rule.id) + ' ' + std::to_string(static_cast<int>(fate)) + given + made;
  const auto [found, is_new] = s.sizeless.emplace(key, next);
  if (is_new) {
    s.fresh.push_back({next, rule.id, static_cast<uint8_t>(fate), given, made, "{}"});
  }
  return found->second;
}

}  // namespace

uint32_t intern(
    uint64_t hash,
    const Rule& rule,
    Fate fate,
    c10::ArrayRef<const c10::TensorImpl*> inputs,
    c10::ArrayRef<const c10::TensorImpl*> outputs,
    const Form& form) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.known.find(hash);
  if (found != s.known.end()) {
    return found->second;
  }
  if (C10_UNLIKELY(s.known.size() >= kMaxSignatures)) {
    return intern_without_sizes(rule, fate, inputs, outputs);
  }
  const auto id = static_cast<uint32_t>(s.known.size() + 1);
  s.known.emplace(hash, id);
  s.fresh.push_back({id, rule.id, static_cast<uint8_t>(fate), describe(inputs), describe(outputs), form.text()});
  return id;
}

std::vector<SignatureText> take_new() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  return std::exchange(s.fresh, {});
}

void forget_all() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.known.clear();
  s.sizeless.clear();
  s.fresh.clear();
}

}  // namespace anymps::signatures

namespace anymps {
namespace {

constexpr std::array<const char*, 5> kLayouts{"contiguous", "transposed", "channels_last", "other", "rows"};

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
  int64_t last = 0, least = 0;
  bool reordered = false;
  for (int64_t axis = 0; axis < tensor->dim(); ++axis) {
    const int64_t stride = tensor->stride(axis);
    if (tensor->size(axis) < 2 || stride == 0) {
      continue;
    }
    reordered = reordered || (last != 0 && stride > last);
    least = least == 0 ? stride : std::min(least, stride);
    last = stride;
  }
  if (!reordered) {
    return Other;
  }
  return last == least ? Rows : Transposed;
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
      text += (i == 0 ? "\"" : ", \"") + std::string(kLayouts[(layouts >> (kLayoutBits * i)) & ((1 << kLayoutBits) - 1)]) + '"';
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
