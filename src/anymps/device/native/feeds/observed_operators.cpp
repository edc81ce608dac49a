// How each operator's calls are written.
#include "feeds/observed_operators.h"

#include "locks/locks.h"

#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_map>

namespace anymps::observer {
namespace {

using c10::DispatchKey;

bool one_of(std::string_view base, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (base == name) {
      return true;
    }
  }
  return false;
}

Kind kind_of(const Rule& rule, std::string_view base, bool is_implicit) {
  if (rule.name.rfind("aten::", 0) != 0) {
    return Kind::Kernel;
  }
  if (one_of(base, {"copy_", "_copy_from", "_copy_from_and_resize"})) {
    return Kind::Copy;
  }
  if (base == "_local_scalar_dense") {
    return Kind::Read;
  }
  if (one_of(base, {"empty", "empty_strided", "resize_", "set_", "record_stream"})) {
    return Kind::Allocation;
  }
  if (one_of(base, {"_unsafe_view", "_reshape_alias", "lift_fresh"})) {
    return Kind::View;
  }
  // `to`, `reshape` and others of many faces are made of a view or of a copy.
  const auto& returns = rule.op.schema().returns();
  bool is_view = !returns.empty() && !is_implicit;
  for (const c10::Argument& result : returns) {
    const c10::AliasInfo* alias = result.alias_info();
    is_view = is_view && alias != nullptr && !alias->isWrite();
  }
  return is_view ? Kind::View : Kind::Kernel;
}

const Rule& rule_of(const c10::OperatorHandle& handle) {
  const Rule* rule = find_rule(c10::toString(handle.operator_name()));
  return rule != nullptr ? *rule : unlisted_rule(handle);
}

// Kernels of mps that a composite operator leaves for, whose faults the rows name by that operator. The arguments that the
// checks ask for have the same names and places. Source: torch 2.13, RNN.cpp and attention.cpp.
const Rule* caller_of(const Rule& rule) {
  if (rule.name == "aten::_lstm_mps") {
    return find_rule("aten::lstm.input");
  }
  if (rule.name == "aten::_scaled_dot_product_attention_math_for_mps") {
    return find_rule("aten::scaled_dot_product_attention");
  }
  return nullptr;
}

}  // namespace

Operator::Operator(const c10::OperatorHandle& handle) : rule(rule_of(handle)), called_by(caller_of(rule)) {
  const std::string base = base_name(rule.name);
  const bool implicit = handle.hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
  kind = kind_of(rule, base, implicit);
  dense = handle.hasKernelForDispatchKey(DispatchKey::MPS);
  sparse = handle.hasKernelForDispatchKey(DispatchKey::SparseMPS);
  composite = implicit || handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      handle.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
  autocast = handle.hasKernelForDispatchKey(DispatchKey::AutocastMPS);
  checks_indices = rule.indices != nullptr && !rule.indices->text.empty();
  // Composite in torch, with a branch for mps inside; one operator in every recording.
  if (rule.name.rfind("aten::", 0) == 0 && one_of(base, {"copy_", "convolution", "_convolution", "convolution_backward"})) {
    dense = true;
  } else if (!rule.listed && !composite && rule.fate == Fate::Native) {
    dense = true;  // torchvision, whose wheels for macOS have kernels, and launches of shaders
  } else if (dense && implicit && !rule.listed) {
    dense = false;  // lstm, attention: made of others on a Mac; the virtual device has a kernel that does the same
  }
  resizes = one_of(base, {"resize_", "set_"});
  for (const c10::Argument& argument : handle.schema().arguments()) {
    resizes = resizes || argument.is_out();
  }
  for (const c10::Argument& result : handle.schema().returns()) {
    fresh.push_back(result.alias_info() == nullptr);
  }
}

const Operator* operator_of(const at::RecordFunction& call) {
  static Mutex mutex;
  static auto* all = new std::unordered_map<const char*, std::unique_ptr<const Operator>>;
  struct Known {
    const char* key;
    const Operator* op;
  };
  constexpr size_t kPlaces = 1024;  // more than programs call operators; those that share a place take turns in it
  thread_local Known places[kPlaces] = {};
  const char* key = call.name();  // the text of its schema, which lives as long as the operator does
  Known& known = places[(reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull >> 54];
  if (C10_LIKELY(known.key == key)) {
    return known.op;
  }
  const auto name = call.operator_name();
  const auto handle = name.has_value() ? c10::Dispatcher::singleton().findSchema(*name) : std::nullopt;
  if (!handle.has_value()) {
    return nullptr;
  }
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<const Operator>& made = (*all)[key];
  if (made == nullptr) {
    made = std::make_unique<const Operator>(*handle);
  }
  known = {key, made.get()};
  return known.op;
}

}  // namespace anymps::observer
