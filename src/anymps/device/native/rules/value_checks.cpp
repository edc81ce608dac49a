// How known faults are recognised that only the values of a call show (anymps/rules/faults).
#include "rules/hazard_checks.h"

#include <ATen/ops/from_blob.h>
#include <ATen/ops/linalg_cholesky_ex.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cmath>
#include <optional>

namespace anymps::hazard_checks {
namespace {

bool readable_values = false;

using c10::ScalarType;

constexpr int64_t kSampledRows = 2, kMostElements = 256;  // of a norm: a look must cost little beside it

struct Values {
  explicit Values(Impl tensor) : data(tensor->data()), type(type_of(tensor)) {}

  double operator[](int64_t place) const {
    switch (type) {
      case ScalarType::Float: return static_cast<const float*>(data)[place];
      case ScalarType::Half: return static_cast<const c10::Half*>(data)[place];
      case ScalarType::BFloat16: return static_cast<const c10::BFloat16*>(data)[place];
      default: return 0;
    }
  }

  const void* data;
  ScalarType type;
};

// Whether the values of a tensor can be looked at: they lie in the host's memory, row by row.
bool is_readable(Impl tensor) {
  return readable_values && tensor != nullptr && tensor->is_contiguous() && tensor->numel() > 0 && tensor->has_storage() &&
      tensor->data() != nullptr;
}

// The kernel takes E[x^2] - E[x]^2 in float32: what is left of it where the mean is far above the spread is rounding. A variance
// below 1e-6 it takes for 0, which shows where `eps` is smaller still.
//
// Looked at are values from all of the row: a group begins with one channel, which may be nearly constant by itself.
bool row_cancels(const Values& values, int64_t begin, int64_t length, double eps) {
  double sum = 0, squares = 0;
  const double origin = values[begin];
  const int64_t looks = std::min(length, kMostElements);
  for (int64_t look = 0; look < looks; ++look) {
    const double distance = values[begin + look * (length - 1) / (looks - 1)] - origin;
    sum += distance;
    squares += distance * distance;
  }
  const double mean = origin + sum / static_cast<double>(looks);
  const double variance = squares / static_cast<double>(looks) - (mean - origin) * (mean - origin);
  constexpr double kRounding = 1.0 / (1 << 17);  // an error of a hundredth
  return std::isfinite(variance) && ((variance + eps) < mean * mean * kRounding || (variance < 1e-6 && variance > eps / 8));
}

bool any_row_cancels(Impl input, int64_t length, double eps) {
  if (!is_readable(input) || length < 2) {
    return false;
  }
  const Values values(input);
  const int64_t rows = input->numel() / length, looks = std::min(rows, kSampledRows);
  for (int64_t look = 0; look < looks; ++look) {
    const int64_t row = looks == 1 ? 0 : look * (rows - 1) / (looks - 1);
    if (row_cancels(values, row * length, length, eps)) {
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

// linalg_cholesky_ex(self, *, upper, check_errors): whether a pivot behind the first block is the first that is not positive.
bool late_pivot(const Seen& seen) {
  const Impl self = seen.tensor(0);
  if (!is_readable(self) || self->dim() < 2 || !seen.above(self->size(-1)) || type_of(self) != ScalarType::Float) {
    return false;
  }
  const at::Tensor matrices = at::from_blob(const_cast<void*>(self->data()), self->sizes(), at::kFloat);
  return std::get<1>(at::linalg_cholesky_ex(matrices, seen.number(1) != 0)).gt(seen.row.low).any().item<bool>();
}

struct Edges {
  double low, high;
};

std::optional<Edges> edges_in(Impl bins) {
  return is_readable(bins) ? std::optional<Edges>({Values(bins)[0], Values(bins)[bins->numel() - 1]}) : std::nullopt;
}

// The outer edges of a dimension: histc(self, bins, min, max), or bins and range of the others. Those that nobody gives are the values'.
std::optional<Edges> edges_of(const Seen& seen, int64_t dimension) {
  const Operand &bins = seen.at(1), &range = seen.at(2);
  const size_t place = static_cast<size_t>(dimension);
  if (bins.kind == Operand::Kind::Tensor) {
    return edges_in(bins.tensor);
  }
  if (bins.kind == Operand::Kind::Tensors) {
    return place < bins.count ? edges_in(bins.tensors[place].unsafeGetTensorImpl()) : std::nullopt;
  }
  if (range.kind == Operand::Kind::Numbers) {
    return 2 * place + 1 < range.count ? std::optional<Edges>({range.numbers[2 * place], range.numbers[2 * place + 1]}) : std::nullopt;
  }
  return range.kind == Operand::Kind::Number ? std::optional<Edges>({seen.number(2), seen.number(3)}) : std::nullopt;
}

// The kernel widens the outer edges by 4e-6, in the type of the values.
template <class T>
bool any_beside(Impl self, int64_t first, int64_t step, Edges edges) {
  const T* values = static_cast<const T*>(self->data());
  const T low = static_cast<T>(static_cast<float>(edges.low)), high = static_cast<T>(static_cast<float>(edges.high));
  const T around = static_cast<T>(4e-6f);
  const float lowest = static_cast<T>(low - around), highest = static_cast<T>(high + around);
  for (int64_t i = first; low < high && i < self->numel(); i += step) {
    const float value = values[i];
    if ((value < low && value >= lowest) || (value > high && value <= highest)) {
      return true;
    }
  }
  return false;
}

bool beside_edges(const Seen& seen) {
  const Impl self = seen.tensor(0);
  if (!is_readable(self)) {
    return false;
  }
  const bool several = seen.at(1).kind == Operand::Kind::Tensors || seen.at(1).kind == Operand::Kind::Sizes;
  const int64_t dimensions = several ? self->size(self->dim() - 1) : 1;
  for (int64_t dimension = 0; dimension < dimensions; ++dimension) {
    const std::optional<Edges> edges = edges_of(seen, dimension);
    if (!edges) {
      continue;
    }
    const bool found = type_of(self) == ScalarType::Float ? any_beside<float>(self, dimension, dimensions, *edges)
        : type_of(self) == ScalarType::Half               ? any_beside<c10::Half>(self, dimension, dimensions, *edges)
        : type_of(self) == ScalarType::BFloat16           ? any_beside<c10::BFloat16>(self, dimension, dimensions, *edges)
                                                          : false;
    if (found) {
      return true;
    }
  }
  return false;
}

}  // namespace

void read_values(bool readable) {
  readable_values = readable;
}

void add_value_checks(std::unordered_map<std::string, CheckKind>& checks) {
  checks.insert({
      {"cancelling_layer_norm", {cancelling_layer_norm, {{"input"}, {"normalized_shape"}, {"eps"}}}},
      {"cancelling_group_norm", {cancelling_group_norm, {{"input"}, {"N"}, {"group"}, {"eps"}}}},
      {"beside_edges", {beside_edges, {{"self"}, {"bins"}, {"range", "min"}, {"max"}}}},
      {"late_pivot", {late_pivot, {{"self"}, {"upper"}}}},
      {"large_unique", {large_unique, {{"self"}, {"return_inverse"}}}},
  });
}

}  // namespace anymps::hazard_checks
