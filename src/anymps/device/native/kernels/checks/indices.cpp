// Bad indices: how a call goes on without them.
#include "kernels/checks/argument_checks.h"

#include "device/device.h"
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <memory>
#include <string>

namespace anymps {
namespace {

using indices::BadIndex;
using indices::filled_in;
using indices::HostCall;
using indices::Layout;
using indices::layout_of;
using indices::only_reads;
using indices::without_padding;
using torch::jit::Stack;

// The device does not look; the host's memory has to be kept from harm.
[[noreturn]] void refuse_unchecked(const Rule& rule, const c10::Error& error) {
  const auto kind = dynamic_cast<const c10::IndexError*>(&error) != nullptr ? ErrorClass::Index : ErrorClass::Runtime;
  refuse(Refusal::Argument, rule, kind, std::string(error.what_without_backtrace()) + texts().not_checked);
}

// Runs the call without its bad indices. What it wrote into a padded `self` goes back without the padding.
void run_without(
    Layout& layout, const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, Stack* stack, size_t first) {
  const HostCall arguments(op, stack, first);
  const at::Tensor self = arguments.front().isTensor() ? arguments.front().toTensor() : at::Tensor();
  if (at::Tensor result = layout.result(); result.defined()) {
    if (const c10::IValue* out = arguments.out(rule)) {
      result = out->toTensor().resize_(result.sizes()).copy_(result);
    }
    stack->resize(first);
    stack->emplace_back(std::move(result));
    return;
  }
  layout.replace();
  const bool padded_result = !only_reads(rule) && !arguments.front().toTensor().sizes().equals(self.sizes());
  c10::IValue* out_argument = arguments.out(rule);
  at::Tensor out = out_argument != nullptr && out_argument->isTensor() ? out_argument->toTensor() : at::Tensor();
  if (padded_result && out.defined()) {
    *out_argument = at::empty({0}, out.options());
  }
  op.redispatchBoxed(key, stack);
  if (!padded_result) {
    return;
  }
  const at::Tensor result = without_padding((*stack)[first].toTensor(), self.sizes());
  if (rule.writes & 1) {
    (*stack)[first] = at::Tensor(self).copy_(result);
  } else if (out.defined()) {
    out.resize_(result.sizes());
    (*stack)[first] = out.copy_(result);
  } else {
    (*stack)[first] = result.clone(at::MemoryFormat::Contiguous);
  }
}

}  // namespace

void compute_with_indices(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, Stack* stack, size_t first) {
  const HostCall arguments(op, stack, first);
  const IndexCheck& check = *rule.indices;
  const bool checked = !check.text.empty();
  const auto go_on_without = [&](Layout& layout, const BadIndex& bad) {
    run_without(layout, rule, op, key, stack, first);
    delayed::note(Refusal::Index, rule, filled_in(bad.range.strided ? check.strided : check.text, bad));
  };
  const bool unguarded = !checked && check.layout == "bag";  // the CPU's backward of bags trusts the forward
  if (unguarded || (checked && !only_reads(rule))) {
    const auto layout = layout_of(rule, arguments);
    const auto bad = layout->find();
    if (C10_LIKELY(!bad.has_value())) {
      op.redispatchBoxed(key, stack);
    } else if (checked) {
      go_on_without(*layout, *bad);
    } else {
      const std::string text = "index " + std::to_string(bad->index) + " is out of range of " + std::to_string(bad->range.size) + " rows";
      refuse(Refusal::Argument, rule, ErrorClass::Index, text + texts().not_checked);
    }
    return;
  }
  const c10::SmallVector<c10::IValue, 8> given(stack->begin() + static_cast<std::ptrdiff_t>(first), stack->end());
  try {
    op.redispatchBoxed(key, stack);
  } catch (const c10::Error& error) {
    stack->resize(first);
    stack->insert(stack->end(), given.begin(), given.end());
    const auto layout = layout_of(rule, arguments);
    const auto bad = layout->find();
    if (!bad.has_value()) {
      throw;
    }
    if (!checked) {
      refuse_unchecked(rule, error);
    }
    go_on_without(*layout, *bad);
  }
}

}  // namespace anymps
