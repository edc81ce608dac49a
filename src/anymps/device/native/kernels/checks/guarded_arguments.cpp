// The range of the indices of each operator, by its layout or its name, and that of probabilities.
#include "kernels/checks/guarded_arguments.h"

#include "device/device.h"
#include "kernels/checks/index_layouts.h"

#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/threshold.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

namespace anymps {
namespace guarded_operators {  // the short names below belong to this file, also where files are compiled together
namespace {

using indices::HostCall;
using torch::jit::Stack;

// ByRule: indices. The others have no rule: the CPU's kernel finds what is bad, the card's stop it.
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

bool is_index(const at::Tensor& tensor) {
  return tensor.defined() && tensor.numel() != 0 && c10::isIntegralType(tensor.scalar_type(), /*includeBool=*/false);
}

bool is_mask(const at::Tensor& tensor) {
  return tensor.scalar_type() == c10::ScalarType::Bool || tensor.scalar_type() == c10::ScalarType::Byte;
}

struct Place {
  int64_t low = 0, size = 0, dimension = 0;
  bool strided = false;
};

std::string filled_in(std::string text, int64_t index, int64_t position, const Place& place) {
  const std::pair<const char*, int64_t> fields[] = {
      {"{index}", index}, {"{dimension}", place.dimension}, {"{size}", place.size}, {"{position}", position}};
  for (const auto& [field, value] : fields) {
    const size_t at = text.find(field);
    if (at != std::string::npos) {
      text.replace(at, std::string(field).size(), std::to_string(value));
    }
  }
  return text;
}

void report_moved(const Rule& rule, const at::Tensor& safe, const at::Tensor& moved, const Place& place) {
  const int64_t position = moved.ne(0).flatten().nonzero().select(0, 0).item<int64_t>();
  const int64_t index = safe.flatten().select(0, position).item<int64_t>() + moved.flatten().select(0, position).item<int64_t>();
  const IndexCheck* check = rule.indices;
  std::string text;
  if (check != nullptr && !check->text.empty()) {
    text = filled_in(place.strided ? check->strided : check->text, index, position, place);
  } else if (kind_of(rule) == Kind::Target) {
    text = "Target " + std::to_string(index) + " is out of bounds.";
  } else {
    text = "index " + std::to_string(index) + " is out of bounds for dimension " + std::to_string(place.dimension) + " with size " +
        std::to_string(place.size) + texts().not_checked;
  }
  delayed::note(Refusal::Index, rule, text);
}

// The forward has had the same indices, and keeps the answer.
bool is_backward(const Rule& rule) {
  return rule.name.find("_backward") != std::string::npos;
}

// Whether a tensor of this type can hold the number.
bool can_hold(const at::Tensor& tensor, int64_t number) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Long: return true;
    case c10::ScalarType::Int: return number >= std::numeric_limits<int32_t>::min() && number <= std::numeric_limits<int32_t>::max();
    default: return false;  // few have such labels
  }
}

at::Tensor clamped(const at::Tensor& given, const Place& place, std::optional<int64_t> ignored) {
  const int64_t high = place.size - 1;
  if (!ignored.has_value()) {
    return at::clamp(given, place.low, high);
  }
  if (place.low == 0 && *ignored < 0 && can_hold(given, *ignored)) {  // one kernel less
    return at::threshold(at::clamp_max(given, high), -1, *ignored);
  }
  return at::where(given.eq(*ignored), given, at::clamp(given, place.low, high));
}

// The index to compute with. Raises nothing and waits for nothing. Kept is how far indices were moved, not those that were given,
// whose memory may serve others by the time that it is looked at.
at::Tensor harmless(const Rule& rule, const at::Tensor& given, const Place& place, std::optional<int64_t> ignored = std::nullopt) {
  const at::Tensor safe = clamped(given, place, ignored);
  if (!is_backward(rule)) {
    const at::Tensor moved = given.sub(safe);
    late_checks::keep(moved, [&rule, safe, moved, place] { report_moved(rule, safe, moved, place); });
  }
  return safe;
}

// A dimension of no size has no good index, and where a call writes on its own indices, a kernel would not see that of those
// that replace them: that is for the CPU to say.
[[noreturn]] void leave_to_cpu() {
  TORCH_CHECK_INDEX(false, "anymps: indices for the CPU to look at");
}

void guard(const Rule& rule, const HostCall& call, c10::IValue& index, Place place) {
  const at::Tensor given = index.toTensor();
  if (!is_index(given)) {
    return;
  }
  if (place.size <= 0 || call.writes_to(rule, given)) {
    leave_to_cpu();
  }
  index = harmless(rule, given, place);
}

int64_t wrapped(const c10::IValue* given, const at::Tensor& self) {
  const int64_t dim = given != nullptr && given->isInt() ? given->toInt() : 0;
  return dim < 0 ? dim + std::max<int64_t>(self.dim(), 1) : dim;
}

// index and _index_put_impl_: a list, in which a mask stands for several dimensions.
void guard_list(const Rule& rule, const HostCall& call) {
  const at::Tensor self = call.front().toTensor();
  c10::IValue& list = *call.find("indices");
  c10::List<std::optional<at::Tensor>> safe;
  int64_t dim = 0, place_among = 0;
  for (const std::optional<at::Tensor>& index : list.toOptionalTensorVector()) {
    if (!index.has_value() || !index->defined()) {
      safe.push_back(index);
      dim += 1;
    } else if (is_mask(*index)) {
      safe.push_back(index);
      dim += index->dim();
      place_among += index->dim();
    } else {
      if (dim >= self.dim()) {
        return;  // too many indices: refused by every kernel's checks
      }
      const int64_t size = self.size(dim);
      if (is_index(*index)) {
        if (size == 0 || call.writes_to(rule, *index)) {
          leave_to_cpu();
        }
        safe.push_back(harmless(rule, *index, {-size, size, place_among, false}));
      } else {
        safe.push_back(index);
      }
      dim += 1;
      place_among += 1;
    }
  }
  list = std::move(safe);
}

// gather_metal and can_use_dense_scatter, as in index_layouts.cpp: which of two texts it is.
bool is_strided(const HostCall& call, const at::Tensor& self, const at::Tensor& index, int64_t dim) {
  if (self.dim() != index.dim() || !index.is_contiguous() || !self.is_contiguous()) {
    return true;
  }
  for (int64_t d = 0; d < self.dim(); ++d) {
    if (d != dim && self.size(d) != index.size(d)) {
      return true;
    }
  }
  const at::Tensor source = call.tensor("src");
  return source.defined() && !(source.is_contiguous() && source.sizes().equals(index.sizes()));
}

void guard_by_rule(const Rule& rule, const HostCall& call) {
  const std::string& layout = rule.indices->layout;
  if (layout == "advanced") {
    guard_list(rule, call);
    return;
  }
  const at::Tensor self = call.front().isTensor() ? call.front().toTensor() : at::Tensor();
  if (layout == "along" || layout == "select") {
    const int64_t dim = wrapped(call.find("dim"), self);
    if (self.dim() != 0 && (dim < 0 || dim >= self.dim())) {
      return;  // refused by every kernel's checks
    }
    c10::IValue& index = *call.find("index");
    const bool strided = layout == "along" && is_strided(call, self, index.toTensor(), dim);
    guard(rule, call, index, {0, self.dim() == 0 ? 1 : self.size(dim), dim, strided});
  }  // other layouts are the CPU's: device/substrates/card_limits.cpp
}

// The label outside of the classes that a loss leaves out.
std::optional<int64_t> left_out(int64_t ignored, int64_t classes) {
  return ignored >= 0 && ignored < classes ? std::nullopt : std::optional<int64_t>(ignored);
}

// Classes, of which one may count as none.
void guard_target(const Rule& rule, const HostCall& call) {
  const at::Tensor self = call.tensor("self");
  c10::IValue& target = *call.find("target");
  const at::Tensor given = target.toTensor();
  if (!is_index(given) || self.dim() == 0) {
    return;
  }
  at::Tensor safe = harmless_target(rule, self, given, call.find("ignore_index")->toInt());
  if (!safe.defined()) {  // no classes
    leave_to_cpu();
  }
  target = std::move(safe);
}

// A padding row may lie outside: the kernel leaves it out.
void guard_rows(const Rule& rule, const HostCall& call) {
  guard(rule, call, *call.find("indices"), {0, call.find("num_weights")->toInt(), 0, false});
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

at::Tensor harmless_index(const Rule& rule, const at::Tensor& given, int64_t size, int64_t dimension) {
  using namespace guarded_operators;
  return is_index(given) && size > 0 ? harmless(rule, given, {0, size, dimension, false}) : at::Tensor();
}

at::Tensor harmless_target(const Rule& rule, const at::Tensor& self, const at::Tensor& given, int64_t ignored) {
  using namespace guarded_operators;
  if (!is_index(given) || self.dim() == 0) {
    return {};
  }
  const int64_t dim = self.dim() == 1 ? 0 : 1, classes = self.size(dim);
  return classes > 0 ? harmless(rule, given, {0, classes, dim, false}, left_out(ignored, classes)) : at::Tensor();
}

}  // namespace anymps
