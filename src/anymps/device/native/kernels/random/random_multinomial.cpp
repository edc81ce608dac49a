// Categories by their weights.
#include "kernels/random/drawing.h"

#include <ATen/ops/multinomial_ops.h>

#include <limits>

namespace anymps {
namespace drawing {
namespace {

// The exponential of torch 2.13 can be exactly zero; from 2.14 on it is clamped (exponential_float in the metallibs of
// the macOS wheels). Here a category of weight zero is never preferred, so that a Mac's rare wrong choice is only said.
void warn_zero_exponential() {
  if constexpr (release::exponential_can_be_zero) {
    TORCH_WARN_ONCE(
        "anymps: multinomial drew an exponential of exactly zero. A Mac divides by it and may then choose a category of "
        "probability zero (pytorch issue 192577); the virtual device does not");
  }
}

template <class Operator>
at::Tensor& sample_categories(
    const at::Tensor& weights, int64_t samples, bool replacement, const MaybeGenerator& generator, at::Tensor& out) {
  // Checks and texts of torch 2.13, aten/src/ATen/native/Distributions.cpp, the same on every device.
  TORCH_CHECK(weights.dim() > 0 && weights.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(
      c10::isFloatingType(weights.scalar_type()),
      "multinomial only supports floating-point dtypes for input, got: ", weights.scalar_type());
  TORCH_CHECK(
      out.scalar_type() == c10::ScalarType::Long, "multinomial expects Long tensor out, got: ", out.scalar_type());
  TORCH_CHECK(samples > 0, "cannot sample n_sample <= 0 samples");
  const int64_t categories = weights.size(-1);
  TORCH_CHECK(
      replacement || samples <= categories, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  const int64_t rows = weights.dim() == 1 ? 1 : weights.size(0);
  if (weights.dim() == 1) {
    out.resize_({samples});
  } else {
    out.resize_({rows, samples});
  }
  if (out.numel() == 0) {
    return out;
  }
  const bool by_ratio = !replacement || samples == 1;
  if (by_ratio) {  // the other way checks nothing on mps
    const auto [low, high] = weights.aminmax();
    if (!(high.template item<double>() < std::numeric_limits<double>::infinity() && low.template item<double>() >= 0)) {
      report(*Operator::rule, "probability tensor contains either `inf`, `nan` or element < 0");
    }
    if (weights.sum(-1).eq(0).any().template item<bool>()) {
      report(*Operator::rule, "invalid multinomial distribution (sum of probabilities <= 0)");
    }
  }
  if (!by_ratio && categories == 0) {
    weights.select(-1, categories - 1);  // raises: the kernel selects the last sum
  }
  if (by_ratio && !at::empty_like(weights).is_contiguous()) {
    // The exponentials have the strides of the weights, and are drawn in the order of memory.
    at::Tensor exponentials = at::empty_like(weights);
    templates::exponential_impl_<ExponentialKernel, Operator>(exponentials, 1.0, generator);
    if (exponentials.eq(0).any().template item<bool>()) {
      warn_zero_exponential();
    }
    const at::Tensor ratio = weights.div(exponentials.abs()).masked_fill_(weights.eq(0), 0);
    out.copy_(std::get<1>(ratio.sort(/*stable=*/true, /*dim=*/-1, /*descending=*/true)).narrow(-1, 0, samples));
    return out;
  }
  const at::Tensor source = weights.contiguous();
  const at::Tensor chosen = out.is_contiguous() ? out : contiguous_like(out);
  int64_t rows_with_zero = 0;
  draw(*Operator::rule, generator, [&](RandomState& state) {
    rows_with_zero = multinomial(
        state, chosen.mutable_data_ptr<int64_t>(), source.const_data_ptr(), rows, categories, samples, replacement,
        element_type("exponential", source.scalar_type()), launch());
  });
  if (rows_with_zero != 0) {
    warn_zero_exponential();
  }
  if (!chosen.is_same(out)) {
    out.copy_(chosen);
  }
  return out;
}

struct Multinomial : Drawing<Multinomial> {
  static at::Tensor call(
      const at::Tensor& self, const c10::SymInt& samples, bool replacement, const MaybeGenerator& generator) {
    at::Tensor result = at::empty({0}, self.options().dtype(c10::kLong));
    sample_categories<Multinomial>(self, samples.guard_int(__FILE__, __LINE__), replacement, generator, result);
    return result;
  }
};

struct MultinomialOut : Drawing<MultinomialOut> {
  static at::Tensor& call(
      const at::Tensor& self, const c10::SymInt& samples, bool replacement, const MaybeGenerator& generator, at::Tensor& out) {
    return sample_categories<MultinomialOut>(self, samples.guard_int(__FILE__, __LINE__), replacement, generator, out);
  }
};

}  // namespace

void add_multinomial(KernelTable& table) {
  namespace ops = at::_ops;
  add_shared<ops::multinomial, Multinomial>(table);
  add_shared<ops::multinomial_out, MultinomialOut>(table);
}

}  // namespace drawing
}  // namespace anymps
