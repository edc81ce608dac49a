// One look for all the checks since the last wait.
#include "device/calls/late_checks.h"

#include <ATen/core/LegacyTypeDispatch.h>
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
  at::Tensor flag;
  std::function<void()> tell;
};

std::mutex mutex;
std::vector<Check> checks;

}  // namespace

std::atomic<bool> open{false};

void keep(at::Tensor flag, std::function<void()> tell) {
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
  std::vector<at::Tensor> flags;
  flags.reserve(taken.size());
  for (const Check& check : taken) {
    flags.push_back(check.flag.to(c10::kBool));  // uint8 for uint8
  }
  const at::Tensor answers = at::stack(flags).cpu();
  const bool* wrong = answers.const_data_ptr<bool>();
  for (size_t i = 0; i < taken.size(); ++i) {
    if (C10_UNLIKELY(wrong[i])) {
      taken[i].tell();
    }
  }
}

}  // namespace anymps::late_checks
