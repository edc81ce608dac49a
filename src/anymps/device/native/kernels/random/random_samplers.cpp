// Operators with kernels of their own: gamma, dirichlet, poisson, binomial, permutations, dropout, categories by their weights.
#include "kernels/random/drawing.h"

#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/binomial_ops.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/poisson_ops.h>
#include <ATen/ops/randperm_ops.h>

#include <limits>

namespace anymps {
namespace drawing {
namespace {

// A tensor like this one, drawn by `sample(state, its data, kind)`.
template <class Operator, class Sample>
at::Tensor sampled(const at::Tensor& like, const MaybeGenerator& generator, const char* kernel, Sample&& sample) {
  at::Tensor result = contiguous_like(like);
  if (result.numel() != 0) {
    draw(*Operator::rule, generator, [&](RandomState& state) {
      sample(state, result.mutable_data_ptr(), element_type(kernel, result.scalar_type()));
    });
  }
  return result;
}

struct StandardGamma : Drawing<StandardGamma> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    const at::Tensor alpha = self.contiguous();
    return sampled<StandardGamma>(self, generator, "standard_gamma", [&](RandomState& state, void* out, ElementType type) {
      sample_standard_gamma(state, out, alpha.const_data_ptr(), alpha.numel(), type, launch());
    });
  }
};

struct SampleDirichlet : Drawing<SampleDirichlet> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    const at::Tensor alpha = self.contiguous();
    const int64_t columns = alpha.dim() > 0 ? alpha.size(-1) : 1;
    return sampled<SampleDirichlet>(self, generator, "standard_dirichlet", [&](RandomState& state, void* out, ElementType type) {
      sample_dirichlet(state, out, alpha.const_data_ptr(), alpha.numel() / columns, columns, type, launch());
    });
  }
};

struct Poisson : Drawing<Poisson> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    const at::Tensor rate = self.contiguous();
    return sampled<Poisson>(self, generator, "poisson", [&](RandomState& state, void* out, ElementType type) {
      sample_poisson(state, out, rate.const_data_ptr(), rate.numel(), type, launch());
    });
  }
};

struct Binomial : Drawing<Binomial> {
  static at::Tensor call(const at::Tensor& count, const at::Tensor& prob, MaybeGenerator generator) {
    TORCH_CHECK_VALUE(
        c10::isFloatingType(count.scalar_type()),
        "binomial only supports floating-point dtypes for count, got: ", count.scalar_type());
    TORCH_CHECK_VALUE(
        c10::isFloatingType(prob.scalar_type()),
        "binomial only supports floating-point dtypes for prob, got: ", prob.scalar_type());
    const at::Tensor trials = count.contiguous();
    const at::Tensor probability = prob.expand(count.sizes()).to(count.scalar_type()).contiguous();
    return sampled<Binomial>(count, generator, "standard_binomial", [&](RandomState& state, void* out, ElementType type) {
      sample_binomial(state, out, trials.const_data_ptr(), probability.const_data_ptr(), trials.numel(), type, launch());
    });
  }
};

struct Randperm : Drawing<Randperm> {
  static at::Tensor& call(const c10::SymInt& count, const MaybeGenerator& generator, at::Tensor& out) {
    const int64_t n = count.guard_int(__FILE__, __LINE__);
    TORCH_CHECK(n >= 0, "n must be non-negative, got", n);
    if (generator.has_value() && generator->device() != kMpsDevice) {
      const std::string said = "Expected a 'mps:0' generator device but found '" + generator->device().str() + "'";
      refuse(Refusal::Generator, *rule, ErrorClass::Runtime, said);
    }
    at::native::check_supported_max_int_with_precision(n, out);
    out.resize_({n});
    if (n == 0) {
      return out;
    }
    const bool in_place = out.is_contiguous() && !out.is_complex();
    const at::Tensor order = in_place ? out : at::empty({n}, out.options().dtype(c10::kLong));
    draw(*rule, generator, [&](RandomState& state) {
      randperm(state, order.mutable_data_ptr(), n, element_type("randperm", order.scalar_type()), in_place, launch());
    });
    if (!in_place) {
      out.copy_(order);
    }
    return out;
  }
};

// Up to torch 2.14 only who calls it by name gets here: torch.dropout draws its mask with bernoulli_ on mps, as on the
// CPU. From 2.15 on it comes here (macOS wheels 2.11 to 2.15, at::native::dropout).
struct Dropout : Drawing<Dropout> {
  static std::tuple<at::Tensor, at::Tensor> call(const at::Tensor& input, double p, std::optional<bool> train) {
    if (input.numel() == 0 || !train.value_or(false) || p == 0) {
      return {input.clone(), at::ones_like(input, input.options().dtype(c10::kBool))};
    }
    const bool complex = input.is_complex();
    if (!complex && !c10::isFloatingType(input.scalar_type())) {
      refuse(
          Refusal::Dtype, *rule, ErrorClass::Runtime,
          std::string("native_dropout_mps: input must be a floating-point or complex tensor, got ") +
              c10::toString(input.scalar_type()));
    }
    const at::Tensor source = input.is_non_overlapping_and_dense() ? input : input.contiguous();
    at::Tensor output = at::empty_like(source);
    at::Tensor mask = at::empty_like(source, source.options().dtype(c10::kBool));
    draw(*rule, std::nullopt, [&](RandomState& state) {
      const uint64_t first = state.offset;
      native_dropout(
          state, complex ? nullptr : output.mutable_data_ptr(), static_cast<uint8_t*>(mask.mutable_data_ptr()),
          complex ? nullptr : source.const_data_ptr(), source.numel(),
          complex ? ElementType::f32 : element_type("dropout_fwd", source.scalar_type()), p, launch());
      // One block an element is skipped, though four elements share one (macOS wheels 2.13 to 2.15).
      state.offset = first + static_cast<uint64_t>(source.numel());
    });
    if (complex) {
      output.copy_(source);
      output.mul_(dropout_scale(p)).masked_fill_(mask.logical_not(), 0);
    }
    return {std::move(output), std::move(mask)};
  }
};

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

void add_samplers(KernelTable& table) {
  namespace ops = at::_ops;
  add_shared<ops::randperm_generator_out, Randperm>(table);
  add_own<ops::native_dropout, Dropout>(table);
  add_own<ops::_standard_gamma, StandardGamma>(table);
  add_own<ops::_sample_dirichlet, SampleDirichlet>(table);
  add_own<ops::poisson, Poisson>(table);
  add_own<ops::binomial, Binomial>(table);
  add_shared<ops::multinomial, Multinomial>(table);
  add_shared<ops::multinomial_out, MultinomialOut>(table);
}

}  // namespace drawing
}  // namespace anymps
