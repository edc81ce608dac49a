// Categories drawn by their weights.
#include "model/philox_launch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace anymps {

std::int64_t multinomial(RandomState& state, std::int64_t* out, const void* weights, std::int64_t rows,
                         std::int64_t categories, std::int64_t samples, bool replacement, ElementType type,
                         const Launch& launch) {
  using namespace philox;
  if (rows <= 0 || categories <= 0 || samples <= 0) return 0;
  const bool by_ratio = samples == 1 || !replacement;
  if (by_ratio && samples > categories) {
    throw std::invalid_argument("cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  }
  std::int64_t zero_rows = 0;
  const auto by_largest_ratio = [&](auto tag) {
    using T = decltype(tag);
    const auto* weight = static_cast<const T*>(weights);
    std::vector<T> exponentials(static_cast<std::size_t>(rows * categories));
    fill_exponential(state, exponentials.data(), rows * categories, type, 1.0, launch);
    std::vector<std::uint8_t> has_zero(static_cast<std::size_t>(rows), 0);
    run(launch, rows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> ratio(static_cast<std::size_t>(categories));
      std::vector<std::int64_t> index(static_cast<std::size_t>(categories));
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t i = 0; i < categories; ++i) {
          const float q = std::fabs(to_float(exponentials[static_cast<std::size_t>(row * categories + i)]));
          const float p = to_float(weight[row * categories + i]);
          if (q == 0.0f) has_zero[static_cast<std::size_t>(row)] = 1;
          ratio[static_cast<std::size_t>(i)] = p == 0.0f ? 0.0f : to_float(from_float<T>(p / q));
        }
        std::iota(index.begin(), index.end(), std::int64_t{0});
        std::partial_sort(index.begin(), index.begin() + samples, index.end(), [&](std::int64_t a, std::int64_t b) {
          const float left = ratio[static_cast<std::size_t>(a)];
          const float right = ratio[static_cast<std::size_t>(b)];
          return left != right ? left > right : a < b;
        });
        std::copy(index.begin(), index.begin() + samples, out + row * samples);
      }
    });
    zero_rows = std::count(has_zero.begin(), has_zero.end(), std::uint8_t{1});
  };
  const auto by_search = [&](auto tag) {
    const auto* weight = static_cast<const decltype(tag)*>(weights);
    std::vector<float> uniforms(static_cast<std::size_t>(rows * samples));
    fill_uniform(state, uniforms.data(), rows * samples, ElementType::f32, 0.0, 1.0, launch);
    run(launch, rows, [&](std::int64_t begin, std::int64_t end) {
      std::vector<float> sums(static_cast<std::size_t>(categories));
      for (std::int64_t row = begin; row < end; ++row) {
        float total = 0.0f;
        for (std::int64_t i = 0; i < categories; ++i) {
          total += to_float(weight[row * categories + i]);
          sums[static_cast<std::size_t>(i)] = total;
        }
        for (std::int64_t i = row * samples; i < (row + 1) * samples; ++i) {
          const float sought = uniforms[static_cast<std::size_t>(i)] * total;
          const auto found = std::lower_bound(sums.begin(), sums.end(), sought) - sums.begin();
          out[i] = std::min<std::int64_t>(found, categories - 1);
        }
      }
    });
  };
  const bool floating = by_ratio ? visit(Floating{}, type, by_largest_ratio) : visit(Floating{}, type, by_search);
  if (!floating) {
    throw std::invalid_argument(
        std::string("multinomial only supports floating-point dtypes for input, got: ") + scalar_name(type));
  }
  return zero_rows;
}

}  // namespace anymps
