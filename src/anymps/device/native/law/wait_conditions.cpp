// Operators that make the host wait only for some of their arguments: the conditions of anymps/rules/_waits.py that are not
// about a single tensor.
#include "law/rule.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <unordered_map>

namespace anymps {
namespace {

// repeat_interleave.Tensor(repeats, *, output_size): the sum of the repeats is read for the result's size.
bool no_output_size(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[1].isNone();
}

// searchsorted(sorted_sequence, self, *, out_int32, right, side, sorter)
bool has_sorter(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[5].isTensor() && arguments[5].toTensor().defined();
}

// histc(self, bins, min, max): equal ends stand for those of the values.
bool equal_ends(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[0].toTensor().numel() > 0 && arguments[2].toScalar().toDouble() == arguments[3].toScalar().toDouble();
}

// histogram.bin_ct(self, bins, *, range, ...), and the two steps of histogramdd
bool no_range(c10::ArrayRef<c10::IValue> arguments) {
  return arguments[0].toTensor().numel() > 0 && arguments[2].isNone();
}

bool is_sparse(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined() && value.toTensor().is_sparse();
}

bool first_is_sparse(c10::ArrayRef<c10::IValue> arguments) {
  return is_sparse(arguments[0]);
}

bool first_two_are_sparse(c10::ArrayRef<c10::IValue> arguments) {
  return is_sparse(arguments[0]) && is_sparse(arguments[1]);
}

}  // namespace

WaitCondition wait_condition(const std::string& name) {
  static const std::unordered_map<std::string, WaitCondition> conditions = {
      {"aten::repeat_interleave.Tensor", &no_output_size},
      {"aten::searchsorted.Tensor", &has_sorter},
      {"aten::searchsorted.Tensor_out", &has_sorter},
      {"aten::searchsorted.Scalar", &has_sorter},
      {"aten::searchsorted.Scalar_out", &has_sorter},
      {"aten::histc", &equal_ends},
      {"aten::histc.out", &equal_ends},
      {"aten::histogram.bin_ct", &no_range},
      {"aten::histogram.bin_ct_out", &no_range},
      {"aten::_histogramdd_bin_edges", &no_range},
      {"aten::_histogramdd_from_bin_cts", &no_range},
      {"aten::index_select", &first_is_sparse},
      {"aten::mul.Tensor", &first_two_are_sparse},
      {"aten::mul_.Tensor", &first_two_are_sparse},
      {"aten::mul.out", &first_two_are_sparse},
  };
  const auto found = conditions.find(name);
  return found == conditions.end() ? nullptr : found->second;
}

}  // namespace anymps
