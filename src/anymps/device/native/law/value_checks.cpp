// How known faults are recognised that only the values of a call show (anymps/rules/faults/_layers.py, _arithmetic.py).
#include "law/value_checks.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace anymps {

namespace {
bool readable_values = false;
}  // namespace

void read_values(bool readable) {
  readable_values = readable;
}

namespace hazard_checks {
namespace {

using c10::ScalarType;

constexpr int64_t kSampledRows = 2, kMostElements = 256;  // of a norm: a look must cost little beside it

double value_at(Impl tensor, int64_t place) {
  const void* data = tensor->data();
  switch (type_of(tensor)) {
    case ScalarType::Float: return static_cast<const float*>(data)[place];
    case ScalarType::Half: return static_cast<const c10::Half*>(data)[place];
    case ScalarType::BFloat16: return static_cast<const c10::BFloat16*>(data)[place];
    default: return 0;
  }
}

// Whether the values of a tensor can be looked at: they lie in the host's memory, row by row.
bool is_readable(Impl tensor) {
  return readable_values && tensor != nullptr && tensor->is_contiguous() && tensor->numel() > 0 && tensor->has_storage() &&
      tensor->data() != nullptr;
}

// The kernel takes E[x^2] - E[x]^2 in float32: what is left of it where the mean is far above the spread is rounding. A variance
// below 1e-6 it takes for 0, which shows where `eps` is smaller still.
bool row_cancels(Impl input, int64_t begin, int64_t length, double eps) {
  double sum = 0, squares = 0;
  const double origin = value_at(input, begin);
  for (int64_t i = 0; i < length; ++i) {
    const double distance = value_at(input, begin + i) - origin;
    sum += distance;
    squares += distance * distance;
  }
  const double mean = origin + sum / static_cast<double>(length);
  const double variance = squares / static_cast<double>(length) - (mean - origin) * (mean - origin);
  constexpr double kRounding = 1.0 / (1 << 17);  // an error of a hundredth
  return std::isfinite(variance) && ((variance + eps) < mean * mean * kRounding || (variance < 1e-6 && variance > eps / 8));
}

bool any_row_cancels(Impl input, int64_t length, double eps) {
  if (!is_readable(input) || length < 2) {
    return false;
  }
  const int64_t rows = input->numel() / length, looks = std::min(rows, kSampledRows);
  for (int64_t look = 0; look < looks; ++look) {
    const int64_t row = looks == 1 ? 0 : look * (rows - 1) / (looks - 1);
    if (row_cancels(input, row * length, std::min(length, kMostElements), eps)) {
      return true;
    }
  }
  return false;
}

// native_layer_norm(input, normalized_shape, weight, bias, eps)
bool cancelling_layer_norm(const Seen& seen) {
  const Operand& shape = seen.at(1);
  if (shape.kind != Operand::Kind::Sizes) {
    return false;
  }
  int64_t length = 1;
  for (uint32_t i = 0; i < shape.count; ++i) {
    length *= shape.sizes[i].expect_int();
  }
  return any_row_cancels(seen.tensor(0), length, seen.number(2));
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
bool cancelling_group_norm(const Seen& seen) {
  const Impl input = seen.tensor(0);
  const double groups = seen.number(1) * seen.number(2);
  return input != nullptr && groups > 0 && any_row_cancels(input, input->numel() / static_cast<int64_t>(groups), seen.number(3));
}

template <class T>
bool any_above(Impl tensor, int64_t bound) {
  const T* values = static_cast<const T*>(tensor->data());
  return std::any_of(values, values + tensor->numel(), [&](T value) { return value > bound || value < -bound; });
}

// _unique2(self, sorted, return_inverse, return_counts)
bool large_unique(const Seen& seen) {
  const Impl self = seen.tensor(0);
  if (seen.number(1) == 0 || !is_readable(self)) {
    return false;
  }
  switch (type_of(self)) {
    case ScalarType::Long: return any_above<int64_t>(self, seen.row.low);
    case ScalarType::Int: return any_above<int32_t>(self, seen.row.low);
    default: return false;
  }
}

}  // namespace

void add_value_checks(std::unordered_map<std::string, CheckKind>& checks) {
  checks.insert({
      {"cancelling_layer_norm", {cancelling_layer_norm, {{"input"}, {"normalized_shape"}, {"eps"}}}},
      {"cancelling_group_norm", {cancelling_group_norm, {{"input"}, {"N"}, {"group"}, {"eps"}}}},
      {"large_unique", {large_unique, {{"self"}, {"return_inverse"}}}},
  });
}

}  // namespace hazard_checks
}  // namespace anymps
