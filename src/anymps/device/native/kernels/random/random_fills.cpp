// Continuous distributions and the geometric one, truth values and whole numbers, by torch's templates.
#include "kernels/random/drawing.h"

#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/uniform_ops.h>

#include <limits>

namespace anymps {
namespace drawing {
namespace {

template <class Operator>
struct UniformKernel {
  void operator()(at::TensorIterator& iter, double from, double to, const MaybeGenerator& given) {
    const GpuDraw same = GpuDraw::uniform(from, to);
    fill(
        *Operator::rule, iter, given, "uniform_dist",
        [&](RandomState& state, void* out, int64_t n, ElementType type) { fill_uniform(state, out, n, type, from, to, launch()); },
        &same);
  }
};

template <class Operator>
struct NormalKernel {
  void operator()(const at::TensorBase& self, double mean, double std, const MaybeGenerator& given) {
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    fill_by<Operator>(iter, given, "normal", &fill_normal, mean, std);
  }
};

template <class Operator>
struct CauchyKernel {
  void operator()(at::TensorIterator& iter, double median, double sigma, const MaybeGenerator& given) {
    fill_by<Operator>(iter, given, "cauchy", &fill_cauchy, median, sigma);
  }
};

template <class Operator>
struct LogNormalKernel {
  void operator()(at::TensorIterator& iter, double mean, double std, const MaybeGenerator& given) {
    fill_by<Operator>(iter, given, "log_normal", &fill_log_normal, mean, std);
  }
};

template <class Operator>
struct GeometricKernel {
  void operator()(at::TensorIterator& iter, double p, const MaybeGenerator& given) {
    fill_by<Operator>(iter, given, "geometric", &fill_geometric, p);
  }
};

// The three pairs of mean and std of which at least one is a tensor: a new tensor each, or `out`.
template <class Mean, class Std>
struct NormalNew : Filling<NormalNew<Mean, Std>> {
  static at::Tensor call(Mean mean, Std std, MaybeGenerator generator) {
    return templates::normal_impl<NormalKernel, NormalNew>(mean, std, std::move(generator));
  }
};
template <class Mean, class Std>
struct NormalOut : Filling<NormalOut<Mean, Std>> {
  static at::Tensor& call(Mean mean, Std std, MaybeGenerator generator, at::Tensor& out) {
    return templates::normal_out_impl<NormalKernel, NormalOut>(out, mean, std, std::move(generator));
  }
};

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
    TORCH_CHECK(p.is_same_size(self) || p.dim() == 0, "bernoulli_mps_: probability and self tensor should be of the same shape");
    if (p.dim() == 0) {
      const double value = p.item<double>();
      TORCH_CHECK(0.0 <= value && value <= 1.0, "bernoulli_mps_ expects p to be in [0, 1], but got p=", value);
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
        "random_mps handles only integral, floating-point and boolean types");
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

// In place, by torch's template of that name.
#define ANYMPS_IN_PLACE(NAME, TEMPLATE)                                             \
  struct NAME : Filling<NAME> {                                                     \
    template <class... Numbers>                                                     \
    static at::Tensor& call(at::Tensor& self, Numbers... numbers) {                 \
      return templates::TEMPLATE<NAME##Kernel, NAME>(self, std::move(numbers)...);  \
    }                                                                               \
  };
ANYMPS_IN_PLACE(Uniform, uniform_impl_)
ANYMPS_IN_PLACE(Exponential, exponential_impl_)
ANYMPS_IN_PLACE(Cauchy, cauchy_impl_)
ANYMPS_IN_PLACE(LogNormal, log_normal_impl_)
ANYMPS_IN_PLACE(Geometric, geometric_impl_)
ANYMPS_IN_PLACE(Normal, normal_impl_)
ANYMPS_IN_PLACE(Bernoulli, bernoulli_impl_)
ANYMPS_IN_PLACE(Random, random_impl)
#undef ANYMPS_IN_PLACE

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

void add_fills(KernelTable& table) {
  namespace ops = at::_ops;
  using T = const at::Tensor&;
  add_shared<ops::uniform_, Uniform>(table);
  add_shared<ops::normal_, Normal>(table);
  add_shared<ops::normal_Tensor_float, NormalNew<T, double>>(table);
  add_shared<ops::normal_Tensor_float_out, NormalOut<T, double>>(table);
  add_shared<ops::normal_float_Tensor, NormalNew<double, T>>(table);
  add_shared<ops::normal_float_Tensor_out, NormalOut<double, T>>(table);
  add_shared<ops::normal_Tensor_Tensor, NormalNew<T, T>>(table);
  add_shared<ops::normal_Tensor_Tensor_out, NormalOut<T, T>>(table);
  add_shared<ops::exponential_, Exponential>(table);
  add_shared<ops::cauchy_, Cauchy>(table);
  add_shared<ops::log_normal_, LogNormal>(table);
  add_shared<ops::geometric_, Geometric>(table);
  add_shared<ops::bernoulli__float, Bernoulli>(table);
  add_shared<ops::bernoulli__Tensor, BernoulliTensor>(table);
  add_shared<ops::bernoulli_out, BernoulliOut>(table);
  add_shared<ops::random_, Random>(table);
  add_shared<ops::random__to, RandomTo>(table);
  add_shared<ops::random__from, RandomFrom>(table);
}

}  // namespace drawing
}  // namespace anymps
