// Samplers with a stream of blocks an element: gamma, dirichlet, poisson, binomial.
#include "model/philox_launch.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numeric>
#include <vector>

namespace anymps {
namespace philox {
namespace {

constexpr std::int64_t kSamplerStride = 32;      // blocks between the streams of two elements of a sampler

// The stream of one element of a sampler: each draw takes the next block.
class Draws {
 public:
  Draws(const Stream& stream, std::uint64_t next) : stream_(stream), next_(next) {}

  float uniform() { return to_unit(stream_.block(next_++)[0]); }

  // Cosine half of Box-Muller over 1 - U, unlike the clamped pair of `normal_`.
  float normal() {
    const auto word = stream_.block(next_++);
    const float radius = std::sqrt(-2.0f * std::log(1.0f - to_unit(word[0])));
    return radius * std::cos(2.0f * kPi * (1.0f - to_unit(word[1])));
  }

 private:
  const Stream& stream_;
  std::uint64_t next_;
};

// sample(element, draws) for each of n elements, in any order.
template <class Sample>
void sample_each(RandomState& state, std::int64_t n, const Launch& launch, const Sample& sample) {
  const Stream stream(state.seed);
  const std::uint64_t offset = state.offset;
  state.offset += static_cast<std::uint64_t>(kSamplerStride * n);
  run(launch, n, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      Draws draws(stream, offset + static_cast<std::uint64_t>(kSamplerStride * i));
      sample(i, draws);
    }
  });
}

// Marsaglia and Tsang (2000), doi 10.1145/358407.358414.
float draw_gamma(float alpha, Draws& draws) {
  if (alpha == 0.0f) return 0.0f;
  float scale = 1.0f;
  if (alpha < 1.0f) {
    scale = std::pow(1.0f - draws.uniform(), 1.0f / alpha);
    alpha += 1.0f;
  }
  const float d = alpha - 1.0f / 3.0f;
  if (!(d > 0.0f)) return std::numeric_limits<float>::quiet_NaN();  // Metal would loop for ever
  const float c = 1.0f / std::sqrt(9.0f * d);
  while (true) {
    float x = 0.0f;
    float root = 0.0f;
    do {
      x = draws.normal();
      root = fused(c, x, 1.0f);
    } while (root <= 0.0f);
    const float v = root * root * root;
    const float u = 1.0f - draws.uniform();
    const float square = x * x;
    const bool inside = u < fused(-0.0331f * square, square, 1.0f);
    if (inside || std::log(u) < 0.5f * square + d * (1.0f - v + std::log(v))) return std::max(scale * d * v, FLT_MIN);
  }
}

// ln k! for whole k >= 0. Not std::lgamma, which writes a global; not Metal's approximation either.
float log_factorial(float k) {
  double x = static_cast<double>(k) + 1.0;
  double shift = 0.0;
  for (; x < 12.0; x += 1.0) shift += std::log(x);
  const double inverse = 1.0 / (x * x);
  const double tail = (1.0 / 12 - (1.0 / 360 - inverse / 1260) * inverse) / x;
  return static_cast<float>((x - 0.5) * std::log(x) - x + 0.91893853320467274178 + tail - shift);
}

// Knuth's product of uniforms below a rate of 10, then Hoermann's PTRS (1993).
float draw_poisson(float rate, Draws& draws) {
  if (!(rate > 0.0f) || std::isinf(rate)) return 0.0f;
  if (rate < 10.0f) {
    const float floor = std::exp(-rate);
    float product = draws.uniform();
    float events = 0.0f;
    for (; product > floor; product *= draws.uniform()) events += 1.0f;
    return events;
  }
  const float log_rate = std::log(rate);
  const float b = 0.931f + 2.53f * std::sqrt(rate);
  const float a = -0.059f + 0.02483f * b;
  const float inverse_alpha = 1.1239f + 1.1328f / (b - 3.4f);
  const float always_below = 0.9277f - 3.6224f / (b - 2.0f);
  while (true) {
    const float u = draws.uniform() - 0.5f;
    const float v = 1.0f - draws.uniform();
    const float us = 0.5f - std::fabs(u);
    const float k = std::floor((2.0f * a / us + b) * u + rate + 0.43f);
    if (k < 0.0f) continue;
    if (us >= 0.07f && v <= always_below) return k;
    if (us < 0.013f && v > us) continue;
    const float left = std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b);
    if (left <= -rate + k * log_rate - log_factorial(k)) return k;
  }
}

// Remainder of Stirling's formula for ln k!.
float stirling_remainder(float k) {
  static constexpr float kExact[] = {0.0810614667953272f,  0.0413406959554092f,  0.0276779256849983f,
                                     0.02079067210376509f, 0.0166446911898211f,  0.0138761288230707f,
                                     0.0118967099458917f,  0.0104112652619720f,  0.00925546218271273f,
                                     0.00833056343336287f};
  if (k < 10.0f) return kExact[static_cast<int>(std::max(k, 0.0f))];
  const float square = (k + 1.0f) * (k + 1.0f);
  return (1.0f / 12 - (1.0f / 360 - 1.0f / 1260 / square) / square) / (k + 1.0f);
}

// Sums geometric gaps until they pass count.
float binomial_by_inversion(float count, float p, Draws& draws) {
  const float log_failure = std::log1p(-p);
  float successes = 0.0f;
  float position = 0.0f;
  while (true) {
    position += std::ceil(std::log(draws.uniform()) / log_failure);
    if (position > count) return successes;
    successes += 1.0f;
  }
}

// Hoermann's BTRS (1993), for count * p >= 10 and p <= 1/2.
float binomial_by_rejection(float count, float p, Draws& draws) {
  const float deviation = std::sqrt(count * p * (1.0f - p));
  const float b = 1.15f + 2.53f * deviation;
  const float a = -0.0873f + 0.0248f * b + 0.01f * p;
  const float centre = count * p + 0.5f;
  const float always_below = 0.92f - 4.2f / b;
  const float odds = p / (1.0f - p);
  const float alpha = (2.83f + 5.1f / b) * deviation;
  const float mode = std::floor((count + 1.0f) * p);
  while (true) {
    const float u = draws.uniform() - 0.5f;
    const float v = draws.uniform();
    const float us = 0.5f - std::fabs(u);
    const float k = std::floor((2.0f * a / us + b) * u + centre);
    if (k < 0.0f || k > count) continue;
    if (us >= 0.07f && v <= always_below) return k;
    const float bound = (mode + 0.5f) * std::log((mode + 1.0f) / (odds * (count - mode + 1.0f))) +
                        (count + 1.0f) * std::log((count - mode + 1.0f) / (count - k + 1.0f)) +
                        (k + 0.5f) * std::log(odds * (count - k + 1.0f) / (k + 1.0f)) + stirling_remainder(mode) +
                        stirling_remainder(count - mode) - stirling_remainder(k) - stirling_remainder(count - k);
    if (std::log(v * alpha / (a / (us * us) + b)) <= bound) return k;
  }
}

float draw_binomial(float count, float p, Draws& draws) {
  if (count <= 0.0f || p <= 0.0f) return 0.0f;
  if (p >= 1.0f) return count;
  // Metal answers NaN for a NaN probability and would loop for ever on the counts.
  if (std::isnan(p) || !std::isfinite(count)) return std::numeric_limits<float>::quiet_NaN();
  const bool mirrored = p > 0.5f;
  const float rare = mirrored ? 1.0f - p : p;
  const float drawn =
      count * rare >= 10.0f ? binomial_by_rejection(count, rare, draws) : binomial_by_inversion(count, rare, draws);
  return mirrored ? count - drawn : drawn;
}

}  // namespace
}  // namespace philox

// draw(number, draws) for each of n numbers.
template <class Draw>
static void sample_each_number(RandomState& state, void* out, const void* numbers, std::int64_t n, const char* kernel, ElementType type,
                               const Launch& launch, const Draw& draw) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>(kernel, type, [&](auto tag) {
    using T = decltype(tag);
    sample_each(state, n, launch, [=](std::int64_t i, Draws& draws) {
      static_cast<T*>(out)[i] = from_float<T>(draw(to_float(static_cast<const T*>(numbers)[i]), draws));
    });
  });
}

void sample_standard_gamma(RandomState& state, void* out, const void* alpha, std::int64_t n, ElementType type,
                           const Launch& launch) {
  sample_each_number(state, out, alpha, n, "standard_gamma", type, launch, philox::draw_gamma);
}

void sample_poisson(RandomState& state, void* out, const void* rate, std::int64_t n, ElementType type,
                    const Launch& launch) {
  sample_each_number(state, out, rate, n, "poisson", type, launch, philox::draw_poisson);
}

void sample_dirichlet(RandomState& state, void* out, const void* alpha, std::int64_t rows, std::int64_t columns,
                      ElementType type, const Launch& launch) {
  using namespace philox;
  if (rows <= 0 || columns <= 0) return;
  with_kernel<Floating>("standard_dirichlet", type, [&](auto tag) {
    using T = decltype(tag);
    std::vector<float> gammas(static_cast<std::size_t>(rows * columns));
    sample_each(state, rows * columns, launch, [&](std::int64_t i, Draws& draws) {
      gammas[static_cast<std::size_t>(i)] = draw_gamma(to_float(static_cast<const T*>(alpha)[i]), draws);
    });
    run(launch, rows, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        const float* gamma = gammas.data() + row * columns;
        const float total = std::accumulate(gamma, gamma + columns, 0.0f);
        for (std::int64_t i = 0; i < columns; ++i) {
          const float share = gamma[i] / total;
          const float kept = std::isnan(share) ? share : std::min(std::max(share, FLT_MIN), 1.0f - kEpsilon);
          static_cast<T*>(out)[row * columns + i] = from_float<T>(kept);
        }
      }
    });
  });
}

void sample_binomial(RandomState& state, void* out, const void* count, const void* probability, std::int64_t n,
                     ElementType type, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("standard_binomial", type, [&](auto tag) {
    using T = decltype(tag);
    sample_each(state, n, launch, [=](std::int64_t i, Draws& draws) {
      const float trials = to_float(static_cast<const T*>(count)[i]);
      const float p = to_float(static_cast<const T*>(probability)[i]);
      static_cast<T*>(out)[i] = from_float<T>(draw_binomial(trials, p, draws));
    });
  });
}

}  // namespace anymps
