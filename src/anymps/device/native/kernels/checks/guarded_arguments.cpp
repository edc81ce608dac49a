// Bad indices: how a call goes on without them. On a GPU they and probabilities are clamped to their range before the kernel, and
// what was outside is a late error.
#include "kernels/checks/argument_checks.h"

#include "device/device.h"
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace anymps {
namespace guarded_operators {  // the short names below belong to this file, also where files are compiled together
namespace {

using indices::BadIndex;
using indices::filled_in;
using indices::HostCall;
using indices::Layout;
using indices::layout_of;
using indices::only_reads;
using indices::Range;
using indices::without_padding;
using torch::jit::Stack;

// ByRule: indices. The others have no rule: the CPU's kernel finds what is bad, the GPU's stop it.
enum class Kind { None, ByRule, Target, Rows, Probabilities };

Kind kind_of(const Rule& rule) {
  const auto begins = [&](const char* name) { return rule.name.rfind(name, 0) == 0; };
  if (begins("aten::nll_loss")) {
    return Kind::Target;
  }
  if (begins("aten::embedding_dense_backward")) {
    return Kind::Rows;
  }
  if (begins("aten::binary_cross_entropy")) {
    return Kind::Probabilities;
  }
  return rule.indices != nullptr ? Kind::ByRule : Kind::None;
}

void report_moved(const Rule& rule, const at::Tensor& safe, const at::Tensor& moved, const Range& range) {
  const int64_t position = moved.ne(0).flatten().nonzero().select(0, 0).item<int64_t>();
  const int64_t index = safe.flatten().select(0, position).item<int64_t>() + moved.flatten().select(0, position).item<int64_t>();
  const IndexCheck* check = rule.indices;
  std::string text;
  if (check != nullptr && !check->text.empty()) {
    text = filled_in(range.strided ? check->strided : check->text, BadIndex{range, index, position});
  } else if (kind_of(rule) == Kind::Target) {
    text = "Target " + std::to_string(index) + " is out of bounds.";
  } else {
    text = "index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(range.dimension) + " with size " +
        std::to_string(range.size) + texts().not_checked;
  }
  delayed::note(Refusal::Index, rule, text);
}

// The index to compute with, of which those that are `ignored` stay. Raises nothing and waits for nothing. Kept is how far indices
// were moved, not those that were given, whose memory may serve others by the time that it is looked at.
at::Tensor harmless(const Rule& rule, Range range, std::optional<int64_t> ignored = std::nullopt) {
  const at::Tensor given = std::exchange(range.index, {});
  at::Tensor safe = at::clamp(given, range.low, range.size - 1);
  if (ignored.has_value()) {
    safe = at::where(given.eq(*ignored), given, safe);
  }
  if (rule.name.find("_backward") == std::string::npos) {  // the forward has had the same indices, and keeps the answer
    const at::Tensor moved = given.sub(safe);
    late_checks::keep(moved, [&rule, safe, moved, range] { report_moved(rule, safe, moved, range); });
  }
  return safe;
}

// A dimension of no size has no good index, and where a call writes on its own indices, a kernel would not see that of those
// that replace them: that is for the CPU to say.
[[noreturn]] void leave_to_cpu() {
  TORCH_CHECK_INDEX(false, "anymps: indices for the CPU to look at");
}

at::Tensor guarded(const Rule& rule, const HostCall& call, Range range, std::optional<int64_t> ignored = std::nullopt) {
  if (!indices::is_index(range.index)) {
    return range.index;
  }
  if (range.size <= 0 || call.writes_to(rule, range.index)) {
    leave_to_cpu();
  }
  return harmless(rule, std::move(range), ignored);
}

void guard_by_rule(const Rule& rule, const HostCall& call) {
  const auto layout = indices::layout_of(rule, call);
  std::vector<at::Tensor> safe;
  for (Range& range : layout->ranges()) {
    safe.push_back(guarded(rule, call, std::move(range)));
  }
  if (!safe.empty()) {
    layout->put(safe);
  }
}

// Classes, of which one outside of them may count as none.
void guard_target(const Rule& rule, const HostCall& call) {
  const at::Tensor self = call.tensor("self");
  if (self.dim() == 0) {
    return;
  }
  const int64_t dim = self.dim() == 1 ? 0 : 1, classes = self.size(dim), label = call.find("ignore_index")->toInt();
  const bool inside = label >= 0 && label < classes;
  c10::IValue& target = *call.find("target");
  target = guarded(rule, call, {target.toTensor(), 0, classes, dim}, inside ? std::nullopt : std::optional<int64_t>(label));
}

// A padding row may lie outside: the kernel leaves it out.
void guard_rows(const Rule& rule, const HostCall& call) {
  c10::IValue& index = *call.find("indices");
  index = guarded(rule, call, {index.toTensor(), 0, call.find("num_weights")->toInt()});
}

// What lies outside 0 to 1, or is no number, goes as 0 or 1.
void guard_probabilities(const Rule& rule, const HostCall& call) {
  for (const char* name : {"self", "target"}) {
    c10::IValue& value = *call.find(name);
    const at::Tensor given = value.toTensor();
    if (!given.defined() || !c10::isFloatingType(given.scalar_type()) || given.numel() == 0) {
      continue;
    }
    at::Tensor safe = at::clamp(given, 0, 1).nan_to_num_(0);
    late_checks::keep(given.ne(safe), [&rule, name] {
      const std::string which = std::string(name) == "self" ? "input" : name;
      delayed::note(Refusal::Index, rule, "all elements of " + which + " should be between 0 and 1");
    });
    value = std::move(safe);
  }
}

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
}  // namespace guarded_operators

bool is_looked_at(const Rule& rule) {
  return guarded_operators::kind_of(rule) != guarded_operators::Kind::None;
}

void guard_arguments(const Rule& rule, const c10::OperatorHandle& op, torch::jit::Stack* stack, size_t first) {
  using namespace guarded_operators;
  const HostCall call(op, stack, first);
  switch (kind_of(rule)) {
    case Kind::Target: guard_target(rule, call); break;
    case Kind::Rows: guard_rows(rule, call); break;
    case Kind::ByRule: guard_by_rule(rule, call); break;
    case Kind::Probabilities: guard_probabilities(rule, call); break;
    case Kind::None: break;
  }
}

void compute_with_indices(
    const Rule& rule, const c10::OperatorHandle& op, c10::DispatchKeySet key, torch::jit::Stack* stack, size_t first) {
  using namespace guarded_operators;
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
