// The list of rules, by number and by name.
#include "rules/rule_list.h"

#include "locks/locks.h"

#include <deque>
#include <mutex>
#include <unordered_set>

namespace anymps {
namespace {

struct Registry {
  Mutex mutex;
  std::deque<Rule> rules;  // addresses stay
  std::unordered_map<std::string, Rule*> by_name;
  std::vector<std::string> families;
  Checks checks;  // addresses stay: filled once
};

Registry& registry() {
  static Registry* the_registry = new Registry;
  return *the_registry;
}

c10::OperatorName parse_name(const std::string& full) {
  const size_t space = full.find("::");
  const size_t dot = full.find('.', space == std::string::npos ? 0 : space);
  return dot == std::string::npos ? c10::OperatorName(full, "") : c10::OperatorName(full.substr(0, dot), full.substr(dot + 1));
}

Rule& new_rule(const c10::OperatorHandle& handle, std::string name) {
  Registry& r = registry();
  r.rules.emplace_back(handle, name);
  Rule& rule = r.rules.back();
  rule.id = static_cast<uint32_t>(r.rules.size() - 1);
  r.by_name.emplace(std::move(name), &rule);
  return rule;
}

void set_dtypes(Rule& rule, const DtypeRow& row) {
  rule.widened = row.widened;
  rule.keeps_wide = row.wide == 1;
  rule.always_wide = row.wide == 2;
  rule.refusals = row.refused;
  for (const auto& [type, refusal] : row.refused) {
    rule.refused |= uint64_t(1) << type;
  }
}

template <class Value>
const Value* find_by_base_name(const std::unordered_map<std::string, Value>& table, const std::string& full) {
  const auto found = table.find(base_name(full));
  return found == table.end() ? nullptr : &found->second;
}

const Rule& stand_in(const char* op, const std::string& name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.by_name.find(name);
  return found != r.by_name.end() ? *found->second
                                  : new_rule(*c10::Dispatcher::singleton().findSchema(parse_name(op)), name);
}

}  // namespace

// Reductions, sorts and rows by an index work along `dim`; a convolution goes over its input by the other three.
static FormArguments form_of(const c10::FunctionSchema& schema) {
  FormArguments places;
  const auto& arguments = schema.arguments();
  const bool view = !schema.returns().empty() && schema.returns()[0].alias_info() != nullptr && !schema.returns()[0].alias_info()->isWrite();
  if (view || arguments.empty() || arguments[0].type()->kind() != c10::TypeKind::TensorType) {
    return places;
  }
  const bool convolves = schema.name().find("convolution") != std::string::npos;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const auto place = static_cast<int>(i);
    if (!convolves && name == "dim") {
      places.axes = place;
    } else if (convolves && name == "stride") {
      places.stride = place;
    } else if (convolves && name == "dilation") {
      places.dilation = place;
    } else if (convolves && name == "groups") {
      places.groups = place;
    }
  }
  return places;
}

static LaborOfCall labor_of(const c10::FunctionSchema& schema) {
  static const std::unordered_map<std::string, LaborOfCall> others = {
      {"aten::mm", {Labor::Product, 0, 1}},
      {"aten::bmm", {Labor::Product, 0, 1}},
      {"aten::mv", {Labor::Product, 0, 1}},
      {"aten::linear", {Labor::Product, 0, 1}},
      {"aten::addmm", {Labor::Product, 1, 2}},
      {"aten::addmm_", {Labor::Product, 1, 2}},
      {"aten::_addmm_activation", {Labor::Product, 1, 2}},
      {"aten::addmv", {Labor::Product, 1, 2}},
      {"aten::addmv_", {Labor::Product, 1, 2}},
      {"aten::baddbmm", {Labor::Product, 1, 2}},
      {"aten::baddbmm_", {Labor::Product, 1, 2}},
      {"aten::addbmm", {Labor::Product, 1, 2}},
      {"aten::addbmm_", {Labor::Product, 1, 2}},
      {"aten::convolution", {Labor::Convolution, 0, 1}},
      {"aten::_convolution", {Labor::Convolution, 0, 1}},
      {"aten::convolution_backward", {Labor::Convolution, 1, 2}},
      {"aten::native_batch_norm", {Labor::Elements}},
      {"aten::_native_batch_norm_legit", {Labor::Elements}},
      {"aten::_batch_norm_with_update", {Labor::Elements}},
      {"aten::native_batch_norm_backward", {Labor::Elements}},
      {"aten::batch_norm_backward", {Labor::Elements}},
      {"aten::native_layer_norm", {Labor::Elements}},
      {"aten::native_layer_norm_backward", {Labor::Elements}},
      {"aten::native_group_norm", {Labor::Elements}},
      {"aten::native_group_norm_backward", {Labor::Elements}},
  };
  const auto found = others.find(schema.name());
  return found == others.end() ? LaborOfCall{} : found->second;
}

Rule::Rule(c10::OperatorHandle handle, std::string full) : op(std::move(handle)), name(std::move(full)) {
  form = form_of(op.schema());
  labor = labor_of(op.schema());
  const auto& arguments = op.schema().arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::AliasInfo* info = arguments[i].alias_info();
    if (info != nullptr && info->isWrite() && i < 64) {
      writes |= uint64_t(1) << i;
    }
    const std::string type = arguments[i].type()->str();
    if (type == "Generator?" || type == "Generator") {
      generator_argument = static_cast<int>(i);
    }
    if (type == "Tensor?[]" && i < 64) {
      optional_lists |= uint64_t(1) << i;
    }
  }
}

void set_families(std::vector<std::string> families) {
  registry().families = std::move(families);
}

const std::string& family_name(uint8_t family) {
  static const std::string none;
  const auto& families = registry().families;
  return family < families.size() ? families[family] : none;
}

void enter_rules(const std::vector<RuleRow>& rows, const DtypeRows& dtypes, const KernelNames& kernels, Checks checks) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  r.checks = std::move(checks);
  for (const RuleRow& row : rows) {
    const auto handle = find_operator(row.name);
    if (!handle.has_value()) {
      continue;
    }
    Rule& rule = new_rule(*handle, row.name);
    rule.listed = true;
    rule.fate = static_cast<Fate>(row.fate);
    rule.family = static_cast<uint8_t>(row.family);
    const WaitCondition& condition = wait_condition(row.when);
    rule.flags = row.traits | condition.look;
    rule.wait = static_cast<Wait>(row.wait);
    rule.waits_if = condition.waits;
    const auto dtype_row = dtypes.find(row.name);
    if (dtype_row != dtypes.end()) {
      set_dtypes(rule, dtype_row->second);
    }
    const auto kernel = kernels.find(row.name);
    if (kernel != kernels.end()) {
      rule.kernel = kernel->second;
    }
    rule.indices = find_by_base_name(r.checks.indices, row.name);
    rule.alert = find_by_base_name(r.checks.alerts, row.name);
  }
}

Rule& enter_rule(const c10::OperatorHandle& op, const std::string& name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  return new_rule(op, name);
}

std::string base_name(const std::string& full) {
  const size_t space = full.find("::");
  const size_t start = space == std::string::npos ? 0 : space + 2;
  return full.substr(start, full.find('.', start) - start);
}

std::optional<c10::OperatorHandle> find_operator(const std::string& full) {
  return c10::Dispatcher::singleton().findSchema(parse_name(full));
}

const Rule& unlisted_rule(const c10::OperatorHandle& op) {
  const std::string name = c10::toString(op.operator_name());
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.by_name.find(name);
  if (found != r.by_name.end()) {
    return *found->second;
  }
  Rule& rule = new_rule(op, name);
  // The wheels of torchvision for macOS bring kernels for mps (torchvision/csrc/ops/mps, torchvision 0.22 to 0.28; nms
  // finishes on the CPU), those for other systems none.
  static const std::unordered_set<std::string> of_torchvision{
      "nms", "roi_align", "_roi_align_backward", "roi_pool", "_roi_pool_backward",
      "ps_roi_align", "_ps_roi_align_backward", "ps_roi_pool", "_ps_roi_pool_backward"};
  const bool native = name.rfind("metal::", 0) == 0 ||  // the launch of a shader: anymps/metal/_tape.py
      (name.rfind("torchvision::", 0) == 0 && of_torchvision.count(name.substr(13)) == 1);
  rule.fate = native ? Fate::Native : Fate::Fallback;
  rule.wait = name == "torchvision::nms" ? Wait::InsideOperator : Wait::None;
  return rule;
}

const Rule& allocation_rule() {
  static const Rule& rule = stand_in("aten::empty.memory_format", "aten::empty.memory_format");
  return rule;
}

const Rule& mark_rule(const std::string& name) {
  return stand_in("aten::empty.memory_format", name);
}

std::vector<std::string> rule_names(size_t first) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  std::vector<std::string> names;
  for (size_t i = first; i < r.rules.size(); ++i) {
    names.push_back(r.rules[i].name);
  }
  return names;
}

void each_rule(const std::function<void(Rule&)>& change) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  for (Rule& rule : r.rules) {
    change(rule);
  }
}

const Rule* find_rule(const std::string& name) {
  Registry& r = registry();
  std::lock_guard<std::mutex> lock(r.mutex);
  const auto found = r.by_name.find(name);
  return found == r.by_name.end() ? nullptr : found->second;
}

int fate_of(const std::string& name) {
  const Rule* rule = find_rule(name);
  return rule == nullptr ? -1 : static_cast<int>(rule->fate);
}

}  // namespace anymps
