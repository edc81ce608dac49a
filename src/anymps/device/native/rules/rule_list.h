// All rules of the process.
#pragma once

#include "rules/rule.h"

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace anymps {

// One row of anymps.rules.core_table().
struct RuleRow {
  std::string name;
  int fate;
  int family;
  unsigned traits;
  int wait;
  std::string when;  // anymps.rules.When
};

// One row of anymps.rules.dtype_table(), by operator.
struct DtypeRow {
  std::unordered_map<int, RefusedDtype> refused;  // by ScalarType
  uint64_t widened;
  int wide;  // 1: results stay wide, 2: wide even where the CPU has the dtype
};
using DtypeRows = std::unordered_map<std::string, DtypeRow>;
using KernelNames = std::unordered_map<std::string, KernelName>;  // by operator

// By base name of the operator.
struct Checks {
  std::unordered_map<std::string, IndexCheck> indices;
  std::unordered_map<std::string, Alert> alerts;
};

// Makes a rule of every row whose operator this torch has. Called once.
void enter_rules(const std::vector<RuleRow>& rows, const DtypeRows& dtypes, const KernelNames& kernels, Checks checks);

// Makes a rule for an operator that has none.
Rule& enter_rule(const c10::OperatorHandle& op, const std::string& name);

// Names of the cross-device families, by the number that rows carry (anymps/rules/_encoding.py).
void set_families(std::vector<std::string> families);
const std::string& family_name(uint8_t family);

// Every rule that there is, to be changed before operators run.
void each_rule(const std::function<void(Rule&)>& change);

// An operator's name without namespace and overload: "add" of "aten::add.Tensor".
std::string base_name(const std::string& full);

// The operator of that full name, if this torch has it.
std::optional<c10::OperatorHandle> find_operator(const std::string& full);

// The rule of that name, or nullptr.
const Rule* find_rule(const std::string& name);

// The fate of a listed operator as its number, or -1.
int fate_of(const std::string& name);

// The rule of an operator that no row named (made at its first use).
const Rule& unlisted_rule(const c10::OperatorHandle& op);

// Stands for an allocation outside any listed operator.
const Rule& allocation_rule();

// Stands for things of our own on the tape: "anymps::synchronize", "anymps::dataloader" and the like.
const Rule& mark_rule(const std::string& name);

// Names of the rules from number `first` on; a rule's number is its place in the list.
std::vector<std::string> rule_names(size_t first);

}  // namespace anymps
