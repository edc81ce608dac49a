// Indices and probabilities clamped to their range before a GPU's kernel, and the late error for those that were outside.
#include "kernels/checks/argument_checks.h"

#include "device/device.h"
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/where.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace anymps {
namespace guarded_operators {  // the short names below belong to this file, also where files are compiled together
namespace {

using indices::BadIndex;
using indices::HostCall;
using indices::Range;
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

}  // namespace anymps
