// Truth values and whole numbers: bernoulli and random, by torch's templates.
#include "kernels/random/drawing.h"

#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/random_ops.h>

#include <limits>

namespace anymps {
namespace drawing {
namespace {

template <class Operator>
struct BernoulliKernel {
  void operator()(const at::Tensor& self, double p, const MaybeGenerator& given) {
    if (self.is_complex()) {  // 1 + 0j or 0: the same draws in the same order of memory
      const auto options = self.options().dtype(c10::kFloat);
      const at::Tensor real =
          self.is_non_overlapping_and_dense() ? at::empty_like(self, options) : at::empty(self.sizes(), options);
      (*this)(real, p, given);
      self.copy_(real);
      return;
    }
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    const GpuDraw same = GpuDraw::bernoulli(p);
    fill(
        *Operator::rule, iter, given, "bernoulli_scalar",
        [&](RandomState& state, void* out, int64_t n, ElementType type) { fill_bernoulli(state, out, n, type, p, launch()); }, &same);
  }
};

template <class Operator>
struct BernoulliTensorKernel {
  void operator()(const at::Tensor& self, const at::Tensor& p, const MaybeGenerator& given) {
    TORCH_CHECK(p.is_same_size(self) || p.dim() == 0, random_texts::bernoulli_shape());
    if (p.dim() == 0) {
      const double value = p.item<double>();
      TORCH_CHECK(0.0 <= value && value <= 1.0, random_texts::bernoulli_probability(value));
      BernoulliKernel<Operator>()(self, value, given);
      return;
    }
    const at::Tensor probabilities = p.to(c10::kFloat).contiguous();
    // Unlike the other fills, row by row for every target that is not contiguous in the usual sense.
    const bool in_place = self.is_contiguous() && !self.is_complex();
    const auto options = self.is_complex() ? self.options().dtype(c10::kFloat) : self.options();
    const at::Tensor rows = in_place ? self : at::empty(self.sizes(), options);
    draw(*Operator::rule, given, [&](RandomState& state) {
      fill_bernoulli_tensor(
          state, rows.mutable_data_ptr(), probabilities.const_data_ptr<float>(), rows.numel(),
          element_type("bernoulli_tensor", rows.scalar_type()), launch());
    });
    if (!in_place) {
      self.copy_(rows);
    }
    if constexpr (release::late_random_checks) {
      if (!probabilities.ge(0).logical_and_(probabilities.le(1)).all().template item<bool>()) {
        report(*Operator::rule, "bernoulli_mps_ expects p to be in [0, 1]");  // bernoulli_tensor in the 2.13 metallib
      }
    }
  }
};

template <class Operator>
struct RandomKernel {
  void operator()(at::TensorIterator& iter, const MaybeGenerator& given) {
    TORCH_CHECK(
        c10::isFloatingType(iter.dtype()) || c10::isIntegralType(iter.dtype(), /*includeBool=*/true),
        random_texts::random_kind());
    fill(*Operator::rule, iter, given, "random_int", [](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_random_int(state, out, n, type, 0, default_random_range(type), launch());
    });
  }
};

template <class Operator>
struct RandomRangeKernel {
  void operator()(at::TensorIterator& iter, uint64_t range, int64_t base, const MaybeGenerator& given) {
    const GpuDraw same = GpuDraw::integers(base, range);
    fill(
        *Operator::rule, iter, given, "random_int",
        [&](RandomState& state, void* out, int64_t n, ElementType type) { fill_random_int(state, out, n, type, base, range, launch()); },
        &same);
  }
  // All of 64 bits.
  void operator()(at::TensorIterator& iter, const MaybeGenerator& given) {
    (*this)(iter, 0, std::numeric_limits<int64_t>::min(), given);
  }
};

struct Bernoulli : Filling<Bernoulli> {
  static at::Tensor& call(at::Tensor& self, double p, MaybeGenerator generator) {
    return templates::bernoulli_impl_<BernoulliKernel, Bernoulli>(self, p, std::move(generator));
  }
};

struct BernoulliTensor : Drawing<BernoulliTensor> {
  static at::Tensor& call(at::Tensor& self, const at::Tensor& p, MaybeGenerator generator) {
    return templates::bernoulli_impl_<BernoulliTensorKernel, BernoulliTensor>(self, p, std::move(generator));
  }
};

struct BernoulliOut : Drawing<BernoulliOut> {
  static at::Tensor& call(const at::Tensor& p, MaybeGenerator generator, at::Tensor& out) {
    return templates::bernoulli_out_impl<BernoulliTensorKernel, BernoulliOut>(out, p, std::move(generator));
  }
};

// The checks of bounds for floats under mps's own name; what passes them passes those of all devices.
[[maybe_unused]] void check_float_bounds(const at::Tensor& self, int64_t from, std::optional<int64_t> to) {
  AT_DISPATCH_FLOATING_TYPES_AND2(c10::ScalarType::Half, c10::ScalarType::BFloat16, self.scalar_type(), "random_update_from_to", [&] {
    const int64_t first = templates::update_from<scalar_t>(from);
    if (to.has_value()) {
      const int64_t last = templates::update_to<scalar_t>(*to);
      TORCH_CHECK(
          first < last, "random_mps_ expects 'from' casted to dtype to be less than 'to' casted to dtype, but got from=", first,
          " >= to=", last);
    } else {
      const int64_t most = int64_t{1} << std::numeric_limits<scalar_t>::digits;
      TORCH_CHECK(
          first < most, "random_mps_ expects 'from' casted to dtype to be less than or equal to 'to' casted to dtype, but got from=",
          first, " > to=", most);
    }
  });
}

// Up to torch 2.12 mps has checks of its own (random_mps_ in the macOS wheels 2.11 and 2.12): integers between two bounds
// may leave the range of the dtype, and wrap. From 2.13 on the checks are those of all devices.
template <class Operator>
at::Tensor& random_between(at::Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
  if constexpr (!release::random_operators_shared) {
    TORCH_CHECK(
        !to.has_value() || from < *to, "random_mps_ expects 'from' to be less than 'to', but got from=", from, " >= to=", *to);
    TORCH_CHECK(
        to.has_value() || from != std::numeric_limits<int64_t>::lowest(),
        "random_mps_ currently does not handle the lowest() -> max() range");
    if (c10::isFloatingType(self.scalar_type())) {
      check_float_bounds(self, from, to);
    }
    if (to.has_value() && c10::isIntegralType(self.scalar_type(), /*includeBool=*/true)) {
      if (self.numel() != 0) {
        auto iter = at::TensorIterator::borrowing_nullary_op(self);
        RandomRangeKernel<Operator>()(iter, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from), from, generator);
      }
      return self;
    }
  }
  return templates::random_from_to_impl<RandomRangeKernel, Operator>(self, from, to, std::move(generator));
}

struct Random : Filling<Random> {
  static at::Tensor& call(at::Tensor& self, MaybeGenerator generator) {
    return templates::random_impl<RandomKernel, Random>(self, std::move(generator));
  }
};

struct RandomTo : Filling<RandomTo> {
  static at::Tensor& call(at::Tensor& self, int64_t to, MaybeGenerator generator) {
    return random_between<RandomTo>(self, 0, to, std::move(generator));
  }
};

struct RandomFrom : Filling<RandomFrom> {
  static at::Tensor& call(at::Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
    return random_between<RandomFrom>(self, from, to, std::move(generator));
  }
};

}  // namespace

void add_integers(KernelTable& table) {
  namespace ops = at::_ops;
  add_shared<ops::bernoulli__float, Bernoulli>(table);
  add_shared<ops::bernoulli__Tensor, BernoulliTensor>(table);
  add_shared<ops::bernoulli_out, BernoulliOut>(table);
  add_shared<ops::random_, Random>(table);
  add_shared<ops::random__to, RandomTo>(table);
  add_shared<ops::random__from, RandomFrom>(table);
}

}  // namespace drawing
}  // namespace anymps
