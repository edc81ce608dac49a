// Operators that a card's kernels compute at once although their arguments or results need a look: that look, typed.
//
// `prepare` makes the aliases harmless and says whether the kernel may have them; if not, the call goes the boxed way, which looks
// by itself. `finish` makes the kernel's results the Mac's.
#pragma once

#include "device/device.h"
#include "kernels/checks/guarded_arguments.h"
#include "kernels/redirect/unboxed.h"

#include <ATen/ops/empty.h>

#include <optional>
#include <tuple>

namespace anymps::direct_calls {

// What a typed kernel gives out as a constant is the alias that its call keeps for it.
inline bool put(const at::Tensor& place, at::Tensor&& harmless) {
  if (!harmless.defined()) {
    return false;
  }
  const_cast<at::Tensor&>(place) = std::move(harmless);
  return true;
}

struct Look : OnCpu {
  static constexpr bool is_looked_at = true;

  template <class R, class... Args>
  static void finish(R&, const Args&...) {}
};

struct IndexSelect : Look {
  static bool prepare(const Rule& rule, const at::Tensor& self, int64_t dim, const at::Tensor& index) {
    const int64_t of = dim < 0 ? dim + self.dim() : dim;
    return self.dim() > 0 && of >= 0 && of < self.dim() && put(index, harmless_index(rule, index, self.size(of), of));
  }
};

struct Loss : Look {
  static bool prepare(
      const Rule& rule, const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>&, int64_t,
      const c10::SymInt& ignored) {
    return put(target, harmless_target(rule, self, target, ignored.expect_int()));
  }
};

struct LossBackward : Look {
  static bool prepare(
      const Rule& rule, const at::Tensor&, const at::Tensor& self, const at::Tensor& target, const std::optional<at::Tensor>&, int64_t,
      const c10::SymInt& ignored, const at::Tensor&) {
    return put(target, harmless_target(rule, self, target, ignored.expect_int()));
  }
};

// A padding row may lie outside: the kernel leaves it out.
struct EmbeddingBackward : Look {
  static bool prepare(
      const Rule& rule, const at::Tensor&, const at::Tensor& indices, const c10::SymInt& rows, const c10::SymInt&, bool) {
    return put(indices, harmless_index(rule, indices, rows.expect_int(), 0));
  }
};

// Without training, the statistics are the running ones, and the other two results are empty.
struct BatchNorm : Look {
  using Results = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
  using Given = std::optional<at::Tensor>;

  static bool prepare(
      const Rule&, const at::Tensor&, const Given&, const Given&, const Given&, const Given&, bool, double, double) {
    return true;
  }
  static void finish(
      Results& results, const at::Tensor&, const Given&, const Given&, const Given&, const Given&, bool training, double, double) {
    if (!training) {
      std::get<1>(results) = at::empty({0}, std::get<1>(results).options());
      std::get<2>(results) = at::empty({0}, std::get<2>(results).options());
    }
  }
};

}  // namespace anymps::direct_calls
