// Operators that draw random numbers: torch's own checks, the Metal stream of philox.h, host memory in place.
//
// From torch 2.13 on most mps distributions are torch's device-independent templates (DistributionTemplates.h) over a
// Metal kernel. The same templates run here, on host aliases, over the same stream; so their checks, their order and
// their texts are those of the installed torch. What has no template follows pytorch's Distributions.mm and Dropout.mm.
#define AT_PER_OPERATOR_HEADERS  // the templates would include every operator of torch otherwise

#include "device/device.h"
#include "kernels/kernel_table.h"
#include "kernels/unboxed.h"
#include "model/model.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/DistributionTemplates.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_sample_dirichlet_ops.h>
#include <ATen/ops/_standard_gamma_ops.h>
#include <ATen/ops/bernoulli_ops.h>
#include <ATen/ops/binomial_ops.h>
#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/multinomial_ops.h>
#include <ATen/ops/native_dropout_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/poisson_ops.h>
#include <ATen/ops/random_ops.h>
#include <ATen/ops/randperm_ops.h>
#include <ATen/ops/uniform_ops.h>
#include <anymps/release.h>
#include <c10/util/Exception.h>

#include <limits>
#include <mutex>

namespace anymps {
namespace drawing {  // the short names below belong to this file, also where files are compiled together
namespace {

namespace templates = at::native::templates;
using MaybeGenerator = std::optional<at::Generator>;

// ---------------------------------------------------------------------------------------------------- launching

constexpr int64_t kGrain = 4096;  // blocks a thread takes at least

// Splits the work over torch's threads. at::parallel_for is inline and would be compiled here, serial without OpenMP;
// TensorIterator's loop over imagined bytes reaches the one inside torch, with its pool and its number of threads.
void parallel_for(int64_t count, const ParallelBody& body) {
  if (count <= kGrain) {
    body(0, count);
    return;
  }
  char origin = 0;  // never read or written: only distances from it count
  const at::Tensor bytes = at::from_blob(&origin, {count}, at::TensorOptions().dtype(c10::kByte).device(c10::kCPU));
  auto iter = at::TensorIterator::borrowing_nullary_op(bytes);
  iter.for_each(
      [&](char** data, const int64_t*, int64_t n, int64_t) {  // one dimension: the outer size is 1
        const int64_t begin = data[0] - &origin;
        body(begin, begin + n);
      },
      kGrain);
}

const Launch& launch() {
  static const Launch the_launch{&parallel_for, release::philox_kernels};
  return the_launch;
}

// ---------------------------------------------------------------------------------------------------- types and errors

// Throws KernelMissing for an element type that no kernel of this name can have.
ElementType element_type(const char* kernel, c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return ElementType::f32;
    case c10::ScalarType::Half: return ElementType::f16;
    case c10::ScalarType::BFloat16: return ElementType::bf16;
    case c10::ScalarType::Byte: return ElementType::u8;
    case c10::ScalarType::Char: return ElementType::i8;
    case c10::ScalarType::Short: return ElementType::i16;
    case c10::ScalarType::Int: return ElementType::i32;
    case c10::ScalarType::Long: return ElementType::i64;
    case c10::ScalarType::UInt16: return ElementType::u16;
    case c10::ScalarType::UInt32: return ElementType::u32;
    case c10::ScalarType::UInt64: return ElementType::u64;
    case c10::ScalarType::Bool: return ElementType::boolean;
    default: break;
  }
  const bool complex = type == c10::ScalarType::ComplexFloat || type == c10::ScalarType::ComplexHalf;
  throw KernelMissing(
      complex ? std::string("Failed to create function state object for: ") + kernel +
              (type == c10::ScalarType::ComplexFloat ? "_float2" : "_half2")
              : std::string("Undefined type ") + c10::toString(type));  // OperationUtils.mm, scalarToMetalTypeString
}

// A check whose answer the real device raises at the next wait, or reads back and raises at once.
void report(const Rule& rule, const std::string& message) {
  if constexpr (release::late_random_checks) {
    delayed::note(Refusal::Index, rule, message);
  } else {
    refuse(Refusal::Argument, rule, ErrorClass::Runtime, message);
  }
}

// Calls body(state) with the lock held. Errors are reported after it is released: reporting takes the GIL, whose holder
// may be waiting for this very lock.
template <class Body>
void draw(const Rule& rule, const MaybeGenerator& given, const Body& body) {
  if constexpr (!release::metal_philox) {
    TORCH_WARN_ONCE(
        "anymps: on a Mac the random numbers of torch 2.11 and 2.12 come from Apple's MPSGraph, whose stream is not public; "
        "these come from the Metal generator of torch 2.13, so that the same seed gives other numbers");
  }
  const at::Generator generator = mps_generator(rule, given);
  try {
    auto* mps = generator.get<MpsGenerator>();
    std::lock_guard<std::mutex> lock(mps->mutex_);
    body(mps->state());
  } catch (const KernelMissing& missing) {
    refuse(Refusal::Dtype, rule, ErrorClass::Runtime, missing.what());
  } catch (const TypeRefused& refused) {
    refuse(Refusal::Dtype, rule, ErrorClass::Type, refused.what());
  } catch (const DispatchMissing& missing) {
    refuse(Refusal::Dtype, rule, ErrorClass::NotImplemented, missing.what());
  } catch (const RangeRefused& refused) {
    refuse(Refusal::Dtype, rule, ErrorClass::Runtime, refused.what());
  } catch (const std::length_error& too_long) {
    refuse(Refusal::Memory, rule, ErrorClass::Runtime, too_long.what());
  }
}

// Calls write(state, pointer, count, type) for the whole target of `iter`. As the Metal host code does, a target without
// gaps is filled in the order of its memory, whatever its strides (channels_last, a transposed tensor), any other one
// row by row through a temporary.
template <class Write>
void fill(
    const Rule& rule, at::TensorIteratorBase& iter, const MaybeGenerator& given, const char* kernel, const Write& write) {
  if (iter.numel() == 0) {
    return;
  }
  if (!iter.is_contiguous()) {
    const at::Tensor target = iter.tensor(0);
    const at::Tensor rows = at::empty(target.sizes(), target.options());
    auto rows_iter = at::TensorIterator::borrowing_nullary_op(rows);
    fill(rule, rows_iter, given, kernel, write);
    target.copy_(rows);
    return;
  }
  draw(rule, given, [&](RandomState& state) {
    write(state, iter.data_ptr(0), iter.numel(), element_type(kernel, iter.dtype(0)));
  });
}

// One operator: its rule, known when its kernel is registered.
template <class Operator>
struct Drawing {
  static inline const Rule* rule = nullptr;
};

// ---------------------------------------------------------------------------------------------------- kernels
// What the templates call. Their second parameter, a generator's type elsewhere, is the operator here.

template <class Operator>
struct UniformKernel {
  void operator()(at::TensorIterator& iter, double from, double to, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "uniform_dist", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_uniform(state, out, n, type, from, to, launch());
    });
  }
};

template <class Operator>
struct NormalKernel {
  void operator()(const at::TensorBase& self, double mean, double std, const MaybeGenerator& given) {
    auto iter = at::TensorIterator::borrowing_nullary_op(self);
    fill(*Operator::rule, iter, given, "normal", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_normal(state, out, n, type, mean, std, launch());
    });
  }
};

template <class Operator>
struct ExponentialKernel {
  void operator()(at::TensorIterator& iter, double lambda, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "exponential", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_exponential(state, out, n, type, lambda, launch());
    });
  }
};

template <class Operator>
struct CauchyKernel {
  void operator()(at::TensorIterator& iter, double median, double sigma, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "cauchy", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_cauchy(state, out, n, type, median, sigma, launch());
    });
  }
};

template <class Operator>
struct LogNormalKernel {
  void operator()(at::TensorIterator& iter, double mean, double std, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "log_normal", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_log_normal(state, out, n, type, mean, std, launch());
    });
  }
};

template <class Operator>
struct GeometricKernel {
  void operator()(at::TensorIterator& iter, double p, const MaybeGenerator& given) {
    fill(*Operator::rule, iter, given, "geometric", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_geometric(state, out, n, type, p, launch());
    });
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
    fill(*Operator::rule, iter, given, "bernoulli_scalar", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_bernoulli(state, out, n, type, p, launch());
    });
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
    fill(*Operator::rule, iter, given, "random_int", [&](RandomState& state, void* out, int64_t n, ElementType type) {
      fill_random_int(state, out, n, type, base, range, launch());
    });
  }
  // All of 64 bits.
  void operator()(at::TensorIterator& iter, const MaybeGenerator& given) {
    (*this)(iter, 0, std::numeric_limits<int64_t>::min(), given);
  }
};

// ---------------------------------------------------------------------------------------------------- templates

struct Uniform : Drawing<Uniform> {
  static at::Tensor& call(at::Tensor& self, double from, double to, MaybeGenerator generator) {
    return templates::uniform_impl_<UniformKernel, Uniform>(self, from, to, std::move(generator));
  }
};

struct Exponential : Drawing<Exponential> {
  static at::Tensor& call(at::Tensor& self, double lambda, MaybeGenerator generator) {
    return templates::exponential_impl_<ExponentialKernel, Exponential>(self, lambda, std::move(generator));
  }
};

struct Cauchy : Drawing<Cauchy> {
  static at::Tensor& call(at::Tensor& self, double median, double sigma, MaybeGenerator generator) {
    return templates::cauchy_impl_<CauchyKernel, Cauchy>(self, median, sigma, std::move(generator));
  }
};

struct LogNormal : Drawing<LogNormal> {
  static at::Tensor& call(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
    return templates::log_normal_impl_<LogNormalKernel, LogNormal>(self, mean, std, std::move(generator));
  }
};

struct Geometric : Drawing<Geometric> {
  static at::Tensor& call(at::Tensor& self, double p, MaybeGenerator generator) {
    return templates::geometric_impl_<GeometricKernel, Geometric>(self, p, std::move(generator));
  }
};

struct Bernoulli : Drawing<Bernoulli> {
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

struct Random : Drawing<Random> {
  static at::Tensor& call(at::Tensor& self, MaybeGenerator generator) {
    return templates::random_impl<RandomKernel, Random>(self, std::move(generator));
  }
};

struct RandomTo : Drawing<RandomTo> {
  static at::Tensor& call(at::Tensor& self, int64_t to, MaybeGenerator generator) {
    return random_between<RandomTo>(self, 0, to, std::move(generator));
  }
};

struct RandomFrom : Drawing<RandomFrom> {
  static at::Tensor& call(at::Tensor& self, int64_t from, std::optional<int64_t> to, MaybeGenerator generator) {
    return random_between<RandomFrom>(self, from, to, std::move(generator));
  }
};

struct Normal : Drawing<Normal> {
  static at::Tensor& call(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
    return templates::normal_impl_<NormalKernel, Normal>(self, mean, std, std::move(generator));
  }
};

// The three pairs of mean and std of which at least one is a tensor: a new tensor each, or `out`.
template <class Mean, class Std>
struct NormalNew : Drawing<NormalNew<Mean, Std>> {
  static at::Tensor call(Mean mean, Std std, MaybeGenerator generator) {
    return templates::normal_impl<NormalKernel, NormalNew>(mean, std, std::move(generator));
  }
};
template <class Mean, class Std>
struct NormalOut : Drawing<NormalOut<Mean, Std>> {
  static at::Tensor& call(Mean mean, Std std, MaybeGenerator generator, at::Tensor& out) {
    return templates::normal_out_impl<NormalKernel, NormalOut>(out, mean, std, std::move(generator));
  }
};

// ---------------------------------------------------------------------------------------------------- samplers

[[maybe_unused]] at::Tensor contiguous_like(const at::Tensor& tensor) {
  return at::empty_like(tensor, at::MemoryFormat::Contiguous);
}

struct StandardGamma : Drawing<StandardGamma> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    at::Tensor result = contiguous_like(self);
    if (result.numel() != 0) {
      const at::Tensor alpha = self.contiguous();
      draw(*rule, generator, [&](RandomState& state) {
        sample_standard_gamma(
            state, result.mutable_data_ptr(), alpha.const_data_ptr(), result.numel(),
            element_type("standard_gamma", result.scalar_type()), launch());
      });
    }
    return result;
  }
};

struct SampleDirichlet : Drawing<SampleDirichlet> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    at::Tensor result = contiguous_like(self);
    if (result.numel() != 0) {
      const at::Tensor alpha = self.contiguous();
      const int64_t columns = alpha.dim() > 0 ? alpha.size(-1) : 1;
      draw(*rule, generator, [&](RandomState& state) {
        sample_dirichlet(
            state, result.mutable_data_ptr(), alpha.const_data_ptr(), result.numel() / columns, columns,
            element_type("standard_dirichlet", result.scalar_type()), launch());
      });
    }
    return result;
  }
};

struct Poisson : Drawing<Poisson> {
  static at::Tensor call(const at::Tensor& self, MaybeGenerator generator) {
    at::Tensor result = contiguous_like(self);
    if (result.numel() != 0) {
      const at::Tensor rate = self.contiguous();
      draw(*rule, generator, [&](RandomState& state) {
        sample_poisson(
            state, result.mutable_data_ptr(), rate.const_data_ptr(), result.numel(),
            element_type("poisson", result.scalar_type()), launch());
      });
    }
    return result;
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
    at::Tensor result = contiguous_like(count);
    if (result.numel() != 0) {
      const at::Tensor trials = count.contiguous();
      const at::Tensor probability = prob.expand(count.sizes()).to(count.scalar_type()).contiguous();
      draw(*rule, generator, [&](RandomState& state) {
        sample_binomial(
            state, result.mutable_data_ptr(), trials.const_data_ptr(), probability.const_data_ptr(), result.numel(),
            element_type("standard_binomial", result.scalar_type()), launch());
      });
    }
    return result;
  }
};

// ---------------------------------------------------------------------------------------------------- the rest

struct Randperm : Drawing<Randperm> {
  static at::Tensor& call(const c10::SymInt& count, const MaybeGenerator& generator, at::Tensor& out) {
    const int64_t n = count.guard_int(__FILE__, __LINE__);
    TORCH_CHECK(n >= 0, random_texts::randperm_count(n));
    if (generator.has_value() && generator->device() != kMpsDevice) {
      refuse(Refusal::Generator, *rule, ErrorClass::Runtime, random_texts::generator_device(generator->device().str()));
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

bool on_mps(const at::Tensor& tensor) {
  return tensor.is_mps();
}
template <class T>
bool on_mps(const T&) {
  return false;
}
bool on_cpu(const at::Tensor& tensor) {
  return tensor.is_cpu();
}
template <class T>
bool on_cpu(const T&) {
  return false;
}

// A generator counts for dispatch, so that CPU tensors with an mps generator get here. From torch 2.13 on the templates
// then choose the CPU's kernel by the tensor, and it is the CPU that refuses the generator.
template <class Signature, class Operator>
class Shared;

template <class Operator, class R, class... Args>
class Shared<R(Args...), Operator> final : public c10::OperatorKernel {
 public:
  explicit Shared(const Rule& rule) : on_device_(rule), op_(rule.op.typed<R(Args...)>()) {}

  R operator()(Args... args) {
    if (C10_UNLIKELY(!(on_mps(args) || ...) && (on_cpu(args) || ...))) {
      return op_.redispatch(c10::DispatchKeySet(c10::DispatchKey::CPU), std::forward<Args>(args)...);
    }
    return on_device_(std::forward<Args>(args)...);
  }

 private:
  Unboxed<R(Args...), Operator> on_device_;
  c10::TypedOperatorHandle<R(Args...)> op_;
};

// An operator that mps has to itself.
template <class Op, class Operator>
void add_own(KernelTable& table) {
  table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) {
    Operator::rule = &rule;
    return make_unboxed<Op, Operator>(rule);
  });
}

// An operator that mps shares with the other devices.
template <class Op, class Operator>
void add(KernelTable& table) {
  if constexpr (release::random_operators_shared) {
    table.rows.emplace_back(full_name<Op>(), [](const Rule& rule) {
      using Kernel = Shared<typename Op::schema, Operator>;
      Operator::rule = &rule;
      return c10::KernelFunction::makeFromUnboxedFunctor<false, Kernel>(std::make_unique<Kernel>(rule));
    });
  } else {
    add_own<Op, Operator>(table);
  }
}

void add_all(KernelTable& table) {
  namespace ops = at::_ops;
  using T = const at::Tensor&;
  add<ops::uniform_, Uniform>(table);
  add<ops::normal_, Normal>(table);
  add<ops::normal_Tensor_float, NormalNew<T, double>>(table);
  add<ops::normal_Tensor_float_out, NormalOut<T, double>>(table);
  add<ops::normal_float_Tensor, NormalNew<double, T>>(table);
  add<ops::normal_float_Tensor_out, NormalOut<double, T>>(table);
  add<ops::normal_Tensor_Tensor, NormalNew<T, T>>(table);
  add<ops::normal_Tensor_Tensor_out, NormalOut<T, T>>(table);
  add<ops::exponential_, Exponential>(table);
  add<ops::cauchy_, Cauchy>(table);
  add<ops::log_normal_, LogNormal>(table);
  add<ops::geometric_, Geometric>(table);
  add<ops::bernoulli__float, Bernoulli>(table);
  add<ops::bernoulli__Tensor, BernoulliTensor>(table);
  add<ops::bernoulli_out, BernoulliOut>(table);
  add<ops::random_, Random>(table);
  add<ops::random__to, RandomTo>(table);
  add<ops::random__from, RandomFrom>(table);
  add<ops::randperm_generator_out, Randperm>(table);
  add<ops::multinomial, Multinomial>(table);
  add<ops::multinomial_out, MultinomialOut>(table);
  add_own<ops::native_dropout, Dropout>(table);
  add_own<ops::_standard_gamma, StandardGamma>(table);
  add_own<ops::_sample_dirichlet, SampleDirichlet>(table);
  add_own<ops::poisson, Poisson>(table);
  add_own<ops::binomial, Binomial>(table);
}

}  // namespace
}  // namespace drawing

void add_random_kernels(KernelTable& table) {
  drawing::add_all(table);
}

}  // namespace anymps
