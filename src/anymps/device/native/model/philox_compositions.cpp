// Permutations, by the paths of the Metal host code, and categories drawn by their weights.
#include "model/philox_launch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

namespace anymps {
namespace philox {
namespace {

constexpr std::int64_t kSmallPermutation = 384;
constexpr std::int64_t kLargePermutation = std::int64_t{1} << 15;
constexpr int kPermutationKeyBits = 24;

// Fisher-Yates from the top over data[0, n), four words a block from `index` on.
void shuffle(const Stream& stream, std::uint64_t index, std::uint32_t* data, std::uint32_t n) {
  std::array<std::uint32_t, 4> words{};
  int used = 4;
  for (std::uint32_t i = n - 1; i > 0; --i) {
    if (used == 4) {
      words = stream.block(index++);
      used = 0;
    }
    std::swap(data[i], data[words[used++] % (i + 1)]);
  }
}

// Indices of `keys` in ascending order, equal keys in index order.
std::vector<std::uint32_t> argsort(const std::vector<std::uint32_t>& keys, int bits) {
  std::vector<std::uint32_t> order(keys.size());
  std::vector<std::uint32_t> next(keys.size());
  std::iota(order.begin(), order.end(), 0U);
  for (int shift = 0; shift < bits; shift += 8) {
    std::array<std::size_t, 257> start{};
    for (const std::uint32_t key : keys) ++start[((key >> shift) & 0xFF) + 1];
    std::partial_sum(start.begin(), start.end(), start.begin());
    for (const std::uint32_t index : order) next[start[(keys[index] >> shift) & 0xFF]++] = index;
    order.swap(next);
  }
  return order;
}

}  // namespace
}  // namespace philox

void randperm(RandomState& state, void* out, std::int64_t n, ElementType type, bool contiguous, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  if (n > std::int64_t{0xFFFFFFFF}) {
    throw std::length_error("anymps: randperm(" + std::to_string(n) + "): the Metal kernels count in 32 bits.");
  }
  const Stream stream(state.seed);
  const auto count = static_cast<std::size_t>(n);
  std::vector<std::uint32_t> order;
  if (n <= kSmallPermutation && contiguous && (type == ElementType::i32 || type == ElementType::i64)) {
    order.resize(count);
    std::iota(order.begin(), order.end(), 0U);
    shuffle(stream, state.offset, order.data(), static_cast<std::uint32_t>(n));
    state.offset += static_cast<std::uint64_t>(ceil_div(n - 1, 4));
  } else if (n >= kLargePermutation) {
    std::vector<std::uint32_t> keys(count);
    fill_random_int(state, keys.data(), n, ElementType::i32, 0, std::uint64_t{1} << kPermutationKeyBits, launch);
    order = argsort(keys, kPermutationKeyBits);
    for (std::size_t first = 0; first < count;) {
      std::size_t last = first + 1;
      while (last < count && keys[order[last]] == keys[order[first]]) ++last;
      // The keys are looked up before the shuffle moves the indices within this run only.
      shuffle(stream, state.offset + first, order.data() + first, static_cast<std::uint32_t>(last - first));
      first = last;
    }
    state.offset += static_cast<std::uint64_t>(n);
  } else {
    std::vector<float> uniforms(count);
    fill_uniform(state, uniforms.data(), n, ElementType::f32, 0.0, 1.0, launch);
    std::vector<std::uint32_t> keys(count);  // non-negative floats sort like their bits
    std::transform(uniforms.begin(), uniforms.end(), keys.begin(), bit_cast_to<std::uint32_t, float>);
    order = argsort(keys, 32);
  }
  visit(Every{}, type, [&](auto tag) {
    auto* target = static_cast<decltype(tag)*>(out);
    std::transform(order.begin(), order.end(), target, from_integer<decltype(tag)>);
  });
}

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
