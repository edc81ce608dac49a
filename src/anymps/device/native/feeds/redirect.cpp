// Decides which kernel each operator gets, and registers it with the dispatcher.
#include "feeds/feeds.h"

#include "device/device.h"
#include "kernels/kernels.h"
#include "rules/rules.h"

#include <c10/core/DispatchKey.h>

#include <unordered_map>
#include <vector>

namespace anymps {
namespace {

using c10::DispatchKey;

using Factories = std::unordered_map<std::string, KernelFactory>;

// PyTorch's own composite kernels for these only rearrange sizes and strides, so that they serve mps as they are.
bool is_metadata_only(const c10::FunctionSchema& schema) {
  for (const auto& result : schema.returns()) {
    const c10::AliasInfo* info = result.alias_info();
    if (info == nullptr || info->isWrite()) {
      return false;
    }
  }
  return !schema.returns().empty();
}

struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::vector<c10::RegistrationHandleRAII>& handles() {
  static auto* the_handles = new std::vector<c10::RegistrationHandleRAII>;  // kept for the life of the process
  return *the_handles;
}

void add(const c10::OperatorHandle& op, DispatchKey key, c10::KernelFunction kernel) {
  handles().push_back(
      c10::Dispatcher::singleton().registerImpl(op.operator_name(), key, std::move(kernel), std::nullopt, nullptr, "anymps"));
}
void add(const Rule& rule, DispatchKey key, c10::KernelFunction kernel) {
  add(rule.op, key, std::move(kernel));
}

Factories all_factories() {
  KernelTable table;
  add_step_kernels(table);
  add_own_kernels(table);
  add_layer_kernels(table);
  add_memory_kernels(table);
  if (substrate().holds_data()) {  // else nothing is drawn
    add_random_kernels(table);
  }
  add_limited_kernels(table);
  return {table.rows.begin(), table.rows.end()};
}

bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutograd) ||
      op.hasKernelForDispatchKey(DispatchKey::CompositeExplicitAutogradNonFunctional);
}

// The kernels of one listed operator. What takes a factory's is struck off the list.
void add_listed(const Rule& rule, Factories& factories) {
  const c10::OperatorHandle& op = rule.op;
  const bool has_cpu = op.hasKernelForDispatchKey(DispatchKey::CPU);
  if ((rule.flags & kDense) && !op.hasKernelForDispatchKey(DispatchKey::MPS)) {  // torch may have one, from Python
    const auto factory = factories.find(rule.name);
    if (factory != factories.end()) {
      add(rule, DispatchKey::MPS, factory->second(rule));
      factories.erase(factory);
    } else if (rule.fate == Fate::AlwaysFallback) {
      add(rule, DispatchKey::MPS, make_fallback(rule));
    } else if (has_cpu || (is_composite(op) && !is_metadata_only(op.schema()))) {
      add(rule, DispatchKey::MPS, make_redirect(rule, DispatchKey::CPU));
    }
  }
  if ((rule.flags & kSparse) && op.hasKernelForDispatchKey(DispatchKey::SparseCPU)) {
    add(rule, DispatchKey::SparseMPS, make_redirect(rule, DispatchKey::SparseCPU));
  }
}

// Operators that are composite on every backend and look at the device inside: they get a kernel of their own.
void add_unlisted(const Factories& factories) {
  for (const auto& [name, factory] : factories) {
    const auto op = find_operator(name);
    // One that is made of differentiable operators would lose its gradient to a kernel of its own; and one that has a
    // kernel on other devices alone is an operator that this release lacks on mps.
    if (op.has_value() && is_composite(*op) && !op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd)) {
      const Rule& rule = enter_rule(*op, name);
      add(rule, DispatchKey::MPS, factory(rule));
    }
  }
}

void add_composites() {
  CompositeTable composites;
  add_composite_kernels(composites);
  for (const auto& [name, kernel, batched] : composites) {
    const auto op = find_operator(name);
    TORCH_CHECK(op.has_value(), "anymps: this torch has no operator ", name);
    const Rule& rule = enter_rule(*op, name);
    add(rule, DispatchKey::MPS, kernel);
    add(rule, DispatchKey::AutogradMPS, kernel);
    if (!batched.isValid()) {
      continue;
    }
    // torch.vmap has a kernel of its own there, which asks the same table; replacing it is meant, and needs no warning.
    Silence silence;
    c10::WarningUtils::WarningHandlerGuard quiet(&silence);
    add(rule, DispatchKey::FuncTorchVmapMode, batched);
  }
}

}  // namespace

void install_redirect() {
  Factories factories = all_factories();
  const std::unordered_map<std::string, ArgumentCheck> argument_checks = limit_checks();
  const std::unordered_map<std::string, ArgumentChange> changes = argument_changes();
  const std::unordered_map<std::string, OwnComputation> computations = own_computations();
  each_rule([&](Rule& rule) {
    const auto own = computations.find(rule.name);
    rule.own = own == computations.end() ? nullptr : own->second;
    const auto check = argument_checks.find(rule.name);
    rule.check = check == argument_checks.end() ? nullptr : check->second;
    const auto change = changes.find(rule.name);
    rule.change = change == changes.end() ? nullptr : change->second;
  });
  // Rules are entered while kernels are made (a kernel may ask for one), so the list is taken first.
  std::vector<const Rule*> listed;
  each_rule([&](Rule& rule) { listed.push_back(&rule); });
  for (const Rule* rule : listed) {
    add_listed(*rule, factories);
  }
  add_unlisted(factories);
  add_composites();
  handles().push_back(c10::Dispatcher::singleton().registerFallback(DispatchKey::MPS, make_catch_all(), "anymps"));
}

}  // namespace anymps
