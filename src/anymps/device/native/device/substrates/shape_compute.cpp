// Operators without arithmetic: meta kernels where torch has them, the stated policy where a shape depends on values.
#include "device/substrates/shape_compute.h"

#include "device/interface/substrate.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <ATen/ExpandUtils.h>
#include <c10/util/Exception.h>

#include <unordered_map>

namespace anymps {
namespace {

using torch::jit::Stack;

constexpr int64_t kStandInBytes = int64_t(1) << 30;  // of zeros for an operator without a meta kernel

const c10::DispatchKeySet kMeta(c10::DispatchKey::Meta);

at::Tensor new_shape(c10::IntArrayRef sizes, c10::ScalarType type) {
  return at::empty(sizes, at::TensorOptions().dtype(type).device(c10::kMeta));
}

// The indices that masks stand for: as many as are selected, all of them where the mask's values are unknown.
c10::List<std::optional<at::Tensor>> without_masks(
    const c10::List<std::optional<at::Tensor>>& indices, const std::vector<int64_t>& selected, size_t& next, bool& assumed) {
  c10::List<std::optional<at::Tensor>> result;
  for (const std::optional<at::Tensor>& index : indices) {
    if (!index.has_value() || !is_mask(*index)) {
      result.push_back(index);
      continue;
    }
    int64_t count = next < selected.size() ? selected[next++] : -1;
    if (count < 0) {
      count = index->numel();
      assumed = true;
    }
    for (int64_t dimension = 0; dimension < index->dim(); ++dimension) {
      result.push_back(new_shape({count}, c10::ScalarType::Long));
    }
  }
  return result;
}

// Shapes that depend on values: everything counts, nothing repeats. Each function gets the arguments, gives the results.
using Given = c10::ArrayRef<c10::IValue>;
using Policy = Stack (*)(Given given, const std::vector<int64_t>& selected);

Stack all_nonzero(Given given, const std::vector<int64_t>&) {
  const at::Tensor self = given[0].toTensor();
  return {new_shape({self.numel(), self.dim()}, c10::ScalarType::Long)};
}

Stack all_selected(Given given, const std::vector<int64_t>& selected) {
  const at::Tensor self = given[0].toTensor(), mask = given[1].toTensor();
  const int64_t all = c10::multiply_integers(at::infer_size(self.sizes(), mask.sizes()));
  const bool counted = !selected.empty() && selected.back() >= 0;
  const int64_t count = counted ? selected.back() * (all / std::max<int64_t>(mask.numel(), 1)) : all;
  return {new_shape({count}, self.scalar_type())};
}

Stack all_unique(Given given, const std::vector<int64_t>&) {
  const at::Tensor self = given[0].toTensor();
  return {
      new_shape({self.numel()}, self.scalar_type()), new_shape(self.sizes(), c10::ScalarType::Long),
      new_shape({self.numel()}, c10::ScalarType::Long)};
}

Stack all_slices_unique(Given given, const std::vector<int64_t>&) {
  const at::Tensor self = given[0].toTensor();
  const int64_t count = self.size(given[1].toInt());
  return {
      new_shape(self.sizes(), self.scalar_type()), new_shape({count}, c10::ScalarType::Long),
      new_shape({count}, c10::ScalarType::Long)};
}

Stack no_repeats(Given given, const std::vector<int64_t>&) {
  const at::Tensor repeats = given[0].toTensor();
  return {new_shape({given[1].isInt() ? given[1].toInt() : repeats.numel()}, repeats.scalar_type())};
}

Stack fewest_bins(Given given, const std::vector<int64_t>&) {
  const bool weighted = given[1].isTensor() && given[1].toTensor().defined();
  const auto type = weighted ? given[1].toTensor().scalar_type() : c10::ScalarType::Long;
  return {new_shape({std::max<int64_t>(given[2].toInt(), 1)}, type)};
}

Stack unequal(Given, const std::vector<int64_t>&) {
  return {false};
}

Policy policy_of(const std::string& name) {
  static const std::unordered_map<std::string, Policy> policies{
      {"aten::nonzero", &all_nonzero},
      {"aten::masked_select", &all_selected},
      {"aten::_unique2", &all_unique},
      {"aten::unique_consecutive", &all_unique},
      {"aten::unique_dim", &all_slices_unique},
      {"aten::unique_dim_consecutive", &all_slices_unique},
      {"aten::repeat_interleave.Tensor", &no_repeats},
      {"aten::bincount", &fewest_bins},
      {"aten::equal", &unequal},
  };
  const auto found = policies.find(name);
  return found == policies.end() ? nullptr : found->second;
}

// Whether all that the operator returns are arguments that it writes: then no shape is to be found.
bool returns_only_arguments(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    if (result.alias_info() == nullptr || !result.alias_info()->isWrite()) {
      return false;
    }
  }
  return true;
}

void return_arguments(const Rule& rule, const c10::FunctionSchema& schema, Stack& stack, size_t first) {
  Stack results;
  for (size_t i = 0; i < schema.arguments().size() && results.size() < schema.returns().size(); ++i) {
    if ((rule.writes >> i) & 1) {
      results.push_back(stack[first + i]);
    }
  }
  stack.resize(first);
  stack.insert(stack.end(), results.begin(), results.end());
}

// No meta kernel: the CPU's kernel on zeros tells the shapes.
void compute_on_zeros(const Rule& rule, const c10::OperatorHandle& op, Stack* stack) {
  const size_t first = stack->size() - op.schema().arguments().size();
  std::vector<std::pair<at::Tensor, at::Tensor>> stand_ins;  // zeros, and the meta tensor they stand for
  for (size_t i = first; i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      if (!tensor.defined() || !tensor.is_meta()) {
        return tensor;
      }
      stand_ins.emplace_back(zeros_like_on_cpu(tensor), tensor);
      return stand_ins.back().first;
    });
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  for (size_t i = first; i < stack->size(); ++i) {
    replace_tensors((*stack)[i], [&](const at::Tensor& tensor) {
      for (const auto& [zeros, shape] : stand_ins) {
        if (zeros.is_same(tensor)) {
          return shape;
        }
      }
      return tensor.defined() ? shape_of(tensor) : tensor;
    });
  }
  assume(rule.name);
}

}  // namespace

bool is_mask(const at::Tensor& tensor) {
  return tensor.defined() && (tensor.scalar_type() == c10::ScalarType::Bool || tensor.scalar_type() == c10::ScalarType::Byte);
}

at::Tensor shape_of(const at::Tensor& tensor) {
  return at::empty_strided(tensor.sizes(), tensor.strides(), at::TensorOptions().dtype(tensor.dtype()).device(c10::kMeta));
}

at::Tensor zeros_like_on_cpu(const at::Tensor& tensor) {
  TORCH_CHECK(
      static_cast<int64_t>(tensor.nbytes()) <= kStandInBytes,
      "anymps: an operator without a shape rule met a tensor of ", tensor.nbytes(),
      " bytes, too large to stand in for on this machine; plan this part with a smaller batch");
  return at::zeros(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype()).device(c10::kCPU));
}

void compute_shapes(const Rule& rule, const c10::OperatorHandle& op, Stack* stack, const std::vector<int64_t>& selected) {
  const auto& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  if (const Policy policy = policy_of(rule.name)) {
    Stack results = policy(Given(*stack).slice(first), selected);
    stack->resize(first);
    stack->insert(stack->end(), results.begin(), results.end());
    assume(rule.name);
    return;
  }
  size_t next = 0;
  bool assumed = false;
  for (size_t i = first; i < stack->size(); ++i) {
    if ((*stack)[i].isOptionalTensorList()) {
      (*stack)[i] = without_masks((*stack)[i].toOptionalTensorList(), selected, next, assumed);
    }
  }
  if (assumed) {
    assume(rule.name);
  }
  if (!has_kernel(op, c10::DispatchKey::Meta)) {
    if (returns_only_arguments(schema)) {
      return_arguments(rule, schema, *stack, first);
    } else {
      compute_on_zeros(rule, op, stack);
    }
    return;
  }
  op.redispatchBoxed(kMeta, stack);
}

}  // namespace anymps
