// One look for all the checks since the last wait.
#include "device/memory/late_checks.h"

#include "locks/locks.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/any.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace anymps::late_checks {
namespace {

// A program that never waits must not keep all its indices for ever: then it is looked at in between.
constexpr size_t kMost = 1024;
constexpr int64_t kSmall = int64_t(1) << 16;  // a flag of more elements is asked at once, and not kept

struct Check {
  at::Tensor flag;
  std::function<void()> tell;
};

Mutex mutex;
std::vector<Check> checks;

using Flags = std::vector<at::Tensor>;

at::Tensor is_any(const at::Tensor& flag) {
  return flag.dim() == 0 ? flag.ne(0) : flag.any().to(c10::kBool);  // uint8 for uint8
}

// Whether an element of one of them is not zero: one wait, and few kernels however many there are.
bool is_any_set(const Flags& flags) {
  std::map<c10::ScalarType, Flags> by_type;
  for (const at::Tensor& flag : flags) {
    by_type[flag.scalar_type()].push_back(flag.flatten());
  }
  Flags answers;
  for (const auto& [type, alike] : by_type) {
    answers.push_back(is_any(alike.size() == 1 ? alike.front() : at::cat(alike)));
  }
  return (answers.size() == 1 ? answers.front() : at::stack(answers).any()).item<bool>();
}

std::vector<bool> which_are_set(const Flags& flags) {
  Flags answers;
  for (const at::Tensor& flag : flags) {
    answers.push_back(is_any(flag));
  }
  const at::Tensor told = at::stack(answers).cpu();
  const bool* first = told.const_data_ptr<bool>();
  return std::vector<bool>(first, first + told.numel());
}

}  // namespace

std::atomic<bool> open{false};

void keep(at::Tensor flag, std::function<void()> tell) {
  if (flag.numel() > kSmall) {
    flag = is_any(flag);
  }
  size_t count = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    checks.push_back({std::move(flag), std::move(tell)});
    count = checks.size();
    open.store(true);
  }
  if (C10_UNLIKELY(count >= kMost)) {
    look();
  }
}

void look() {
  std::vector<Check> taken;
  {
    std::lock_guard<std::mutex> lock(mutex);
    taken.swap(checks);
    open.store(false);
  }
  if (taken.empty()) {
    return;  // another thread looks at them
  }
  c10::impl::ExcludeDispatchKeyGuard below(c10::autograd_dispatch_keyset_with_ADInplaceOrView);
  Flags flags;
  for (const Check& check : taken) {
    flags.push_back(check.flag);
  }
  if (C10_LIKELY(!is_any_set(flags))) {
    return;
  }
  const std::vector<bool> set = which_are_set(flags);
  for (size_t i = 0; i < taken.size(); ++i) {
    if (set[i]) {
      taken[i].tell();
    }
  }
}

}  // namespace anymps::late_checks
