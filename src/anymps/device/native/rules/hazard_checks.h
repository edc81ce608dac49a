// The conditions under which a call meets a known fault of the real backend.
#pragma once

#include "rules/operand.h"

#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace anymps::hazard_checks {

using Impl = const c10::TensorImpl*;
using Places = std::array<int8_t, 4>;  // of a check's roles among the arguments; -1: the operator has none

// What a check sees: its arguments by role, absent ones empty.
class Seen {
 public:
  Seen(const HazardRow& row, const Places& places, c10::ArrayRef<Operand> operands)
      : row(row), all(operands), places_(places) {}

  const HazardRow& row;
  const c10::ArrayRef<Operand> all;

  const Operand& at(size_t role) const {
    static const Operand none;
    const int8_t place = places_[role];
    return place < 0 || static_cast<size_t>(place) >= all.size() ? none : all[static_cast<size_t>(place)];
  }
  // A tensor on mps, or nullptr.
  Impl tensor(size_t role) const {
    const Impl impl = any_tensor(role);
    return impl != nullptr && impl->is_mps() && !impl->is_sparse() ? impl : nullptr;
  }
  Impl any_tensor(size_t role) const {
    return at(role).kind == Operand::Kind::Tensor ? at(role).tensor : nullptr;
  }
  double number(size_t role) const {
    return at(role).kind == Operand::Kind::Number ? at(role).number : 0;
  }
  bool wants(size_t role, size_t bit) const {
    return at(role).kind == Operand::Kind::Mask && ((at(role).mask >> bit) & 1);
  }
  bool above(int64_t measure) const {
    return measure > row.low;
  }
  bool in_range(int64_t measure) const {
    return measure >= row.low && (row.high == 0 || measure <= row.high);
  }

 private:
  const Places& places_;
};

inline c10::ScalarType type_of(Impl tensor) {
  return c10::typeMetaToScalarType(tensor->dtype());
}
inline bool is_half(Impl tensor) {
  return type_of(tensor) == c10::ScalarType::Half || type_of(tensor) == c10::ScalarType::BFloat16;
}
inline int64_t bytes_of(Impl tensor) {
  return tensor->numel() * static_cast<int64_t>(tensor->itemsize());
}

// How many of the dimensions that an argument lists are among the last `count` of a tensor.
int64_t dimensions_among_last(Impl tensor, const Operand& dims, int64_t count);

// Whether a dimension of a convolution's result, or of its weight, is larger than `most`.
bool convolution_passes(
    int64_t most, const c10::TensorImpl& input, const c10::TensorImpl& weight, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation);

// A condition, and the arguments that it asks for: of each role the first name that the operator's schema has.
struct CheckKind {
  bool (*applies)(const Seen&);
  std::vector<std::vector<const char*>> roles;
};

// By the name in anymps.rules.Check.
const std::unordered_map<std::string, CheckKind>& checks();

void add_product_checks(std::unordered_map<std::string, CheckKind>& checks);  // product_checks.cpp: matrix products, linear layers
void add_path_checks(std::unordered_map<std::string, CheckKind>& checks);  // path_checks.cpp: slow paths, strided operands
void add_value_checks(std::unordered_map<std::string, CheckKind>& checks);  // value_checks.cpp: what only the values of a call show

// Whether the host can read what a tensor on mps holds: it computes at once, on memory of its own. False until it is set.
void read_values(bool readable);

}  // namespace anymps::hazard_checks
