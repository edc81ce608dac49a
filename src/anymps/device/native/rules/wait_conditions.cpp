// Operators that make the host wait only for some of their arguments: the conditions of anymps.rules.When, by name.
#include "rules/rule.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>

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

const WaitCondition& wait_condition(const std::string& name) {
  static const std::unordered_map<std::string, WaitCondition> conditions = {
      {"always", {}},
      {"index_is_mask", {kWaitsOnMask}},
      {"scalar_on_mps", {kWaitsOnScalar}},
      {"zero_dim", {kWaitsOnZeroDim}},
      {"no_output_size", {kWaitsOnArguments, &no_output_size}},
      {"sorter_given", {kWaitsOnArguments, &has_sorter}},
      {"equal_ends", {kWaitsOnArguments, &equal_ends}},
      {"no_range", {kWaitsOnArguments, &no_range}},
      {"first_is_sparse", {kWaitsOnArguments, &first_is_sparse}},
      {"both_are_sparse", {kWaitsOnArguments, &first_two_are_sparse}},
  };
  const auto found = conditions.find(name);
  TORCH_CHECK(found != conditions.end(), "anymps: the native core has no wait condition \"", name, "\" (rules/wait_conditions.cpp)");
  return found->second;
}

Wait wait_for_tensor(const Rule& rule, const at::Tensor& tensor, size_t place) {
  if ((rule.flags & kCpuIndexOk) && place == 1 && tensor.device().is_cpu()) {
    return Wait::CopyToMps;  // a blocking copy of the index, mask or not (torch 2.13, make_info)
  }
  const bool mask = tensor.scalar_type() == c10::ScalarType::Bool || tensor.scalar_type() == c10::ScalarType::Byte;
  const bool waits = ((rule.flags & kWaitsOnMask) && place > 0 && mask) ||
      ((rule.flags & kWaitsOnScalar) && place > 0 && tensor.dim() == 0 && tensor.device().is_mps()) ||
      ((rule.flags & kWaitsOnZeroDim) && place == 0 && tensor.dim() == 0);
  return waits ? rule.wait : Wait::None;
}

}  // namespace anymps
