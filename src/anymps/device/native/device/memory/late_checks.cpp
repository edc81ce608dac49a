// One look for all the checks since the last wait.
#include "device/memory/late_checks.h"

#include "locks/locks.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/any.h>
#include <ATen/ops/stack.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <mutex>
#include <utility>
#include <vector>

namespace anymps::late_checks {
namespace {

// A program that never waits must not keep all its indices for ever: then it is looked at in between.
constexpr size_t kMost = 1024;

struct Check {
  at::Tensor flag;  // of one truth value
  std::function<void()> report;
};

Mutex mutex;
std::vector<Check> checks;

}  // namespace

std::atomic<bool> open{false};

void keep(const at::Tensor& flag, std::function<void()> report) {
  size_t count = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    checks.push_back({flag.any().to(c10::kBool), std::move(report)});  // uint8 for uint8
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
  std::vector<at::Tensor> flags;
  for (const Check& check : taken) {
    flags.push_back(check.flag);
  }
  const at::Tensor answers = at::stack(flags).cpu();  // one wait, however many there are
  for (size_t i = 0; i < taken.size(); ++i) {
    if (answers.const_data_ptr<bool>()[i]) {
      taken[i].report();
    }
  }
}

}  // namespace anymps::late_checks
