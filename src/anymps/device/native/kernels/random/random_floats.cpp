// Continuous distributions and the geometric one, by torch's templates.
#include "kernels/random/drawing.h"

#include <ATen/ops/cauchy_ops.h>
#include <ATen/ops/exponential_ops.h>
#include <ATen/ops/geometric_ops.h>
#include <ATen/ops/log_normal_ops.h>
#include <ATen/ops/normal_ops.h>
#include <ATen/ops/uniform_ops.h>

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

struct Uniform : Filling<Uniform> {
  static at::Tensor& call(at::Tensor& self, double from, double to, MaybeGenerator generator) {
    return templates::uniform_impl_<UniformKernel, Uniform>(self, from, to, std::move(generator));
  }
};

struct Exponential : Filling<Exponential> {
  static at::Tensor& call(at::Tensor& self, double lambda, MaybeGenerator generator) {
    return templates::exponential_impl_<ExponentialKernel, Exponential>(self, lambda, std::move(generator));
  }
};

struct Cauchy : Filling<Cauchy> {
  static at::Tensor& call(at::Tensor& self, double median, double sigma, MaybeGenerator generator) {
    return templates::cauchy_impl_<CauchyKernel, Cauchy>(self, median, sigma, std::move(generator));
  }
};

struct LogNormal : Filling<LogNormal> {
  static at::Tensor& call(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
    return templates::log_normal_impl_<LogNormalKernel, LogNormal>(self, mean, std, std::move(generator));
  }
};

struct Geometric : Filling<Geometric> {
  static at::Tensor& call(at::Tensor& self, double p, MaybeGenerator generator) {
    return templates::geometric_impl_<GeometricKernel, Geometric>(self, p, std::move(generator));
  }
};

struct Normal : Filling<Normal> {
  static at::Tensor& call(at::Tensor& self, double mean, double std, MaybeGenerator generator) {
    return templates::normal_impl_<NormalKernel, Normal>(self, mean, std, std::move(generator));
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

}  // namespace

void add_floats(KernelTable& table) {
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
}

}  // namespace drawing
}  // namespace anymps
