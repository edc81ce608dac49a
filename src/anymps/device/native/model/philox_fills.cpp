// Distributions whose elements take their words from shared blocks: uniform to random_int, and dropout.
#include "model/philox_launch.h"

#include <algorithm>
#include <cmath>

namespace anymps {

void fill_uniform(RandomState& state, void* out, std::int64_t n, ElementType type, double from, double to,
                  const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("uniform_dist", type, [&](auto tag) {
    using T = decltype(tag);
    const auto low = static_cast<float>(from);
    const auto high = static_cast<float>(to);
    const float scale = high - low;
    const auto formula = [=](float u) { return fused(scale, u, low); };
    if (launch.release < 15) {
      fill_by_word(state, static_cast<T*>(out), n, launch, formula);
      return;
    }
    fill_by_word(state, static_cast<T*>(out), n, launch, formula, [=](float value) {
      const T rounded = from_float<T>(value);
      return to_float(rounded) == high ? from_float<T>(low) : rounded;
    });
  });
}

void fill_normal(RandomState& state, void* out, std::int64_t n, ElementType type, double mean, double std,
                 const Launch& launch) {
  using namespace philox;
  const bool floating = visit(Floating{}, type, [&](auto tag) {
    const auto centre = static_cast<float>(mean);
    const auto width = static_cast<float>(std);
    fill_by_normal(state, static_cast<decltype(tag)*>(out), n, launch, [=](float z) { return fused(width, z, centre); });
  });
  if (!floating) throw TypeRefused(std::string("normal_kernel_mps not implemented for '") + scalar_name(type) + "'");
}

void fill_exponential(RandomState& state, void* out, std::int64_t n, ElementType type, double lambda,
                      const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("exponential", type, [&](auto tag) {
    const auto rate = static_cast<float>(lambda);
    const float least = launch.release < 14 ? 0.0f : 0x1p-24f;
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch, [=](float u) {
      return -std::log(1.0f - std::min(std::max(u, least), 1.0f - kEpsilon)) / rate;
    });
  });
}

void fill_cauchy(RandomState& state, void* out, std::int64_t n, ElementType type, double median, double sigma,
                 const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("cauchy", type, [&](auto tag) {
    const auto centre = static_cast<float>(median);
    const auto width = static_cast<float>(sigma);
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch, [=](float u) {
      return fused(width, std::tan(kPi * (std::min(std::max(u, kEpsilon), 1.0f - kEpsilon) - 0.5f)), centre);
    });
  });
}

void fill_log_normal(RandomState& state, void* out, std::int64_t n, ElementType type, double mean, double std,
                     const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("log_normal", type, [&](auto tag) {
    const auto centre = static_cast<float>(mean);
    const auto width = static_cast<float>(std);
    fill_by_normal(state, static_cast<decltype(tag)*>(out), n, launch,
                   [=](float z) { return std::exp(fused(width, z, centre)); });
  });
}

void fill_geometric(RandomState& state, void* out, std::int64_t n, ElementType type, double p, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Geometric>("geometric", type, [&](auto tag) {
    const auto log_failure = static_cast<float>(std::log1p(-p));  // in double on the host, as there
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch,
                 [=](float u) { return std::ceil(std::log(std::max(u, kEpsilon)) / log_failure); });
  });
}

void fill_bernoulli(RandomState& state, void* out, std::int64_t n, ElementType type, double p, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Bernoulli>("bernoulli_scalar", type, [&](auto tag) {
    using T = decltype(tag);
    const auto threshold = static_cast<float>(p);
    fill<4, std::uint8_t>(
        state, static_cast<T*>(out), n, launch,
        [=](const Lanes& lanes, std::uint8_t* values) {
          for (int i = 0; i < kLanes; ++i) {
            for (int j = 0; j < 4; ++j) values[4 * i + j] = to_unit(lanes.word[j][i]) < threshold;
          }
        },
        from_flag<T>);
  });
}

void fill_bernoulli_tensor(RandomState& state, void* out, const float* probabilities, std::int64_t n, ElementType type,
                           const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Bernoulli>("bernoulli_tensor", type, [&](auto tag) {
    using T = decltype(tag);
    auto* target = static_cast<T*>(out);
    const std::uint64_t offset = state.offset;
    state.offset += static_cast<std::uint64_t>(n);
    launch_blocks<4>(state.seed, offset, n, launch, [=](const Lanes& lanes, std::int64_t first, int count) {
      for (int i = 0; i < count; ++i) {
        target[first + i] = from_flag<T>(to_unit(lanes.word[i % 4][i / 4]) < probabilities[first + i]);
      }
    });
  });
}

void fill_random_int(RandomState& state, void* out, std::int64_t n, ElementType type, std::int64_t base,
                     std::uint64_t range, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  if (range == std::numeric_limits<std::uint64_t>::max()) range = 0;
  const auto shifted = [base](std::uint64_t value) {  // wraps as 64-bit integers do on the device
    return static_cast<std::int64_t>(value + static_cast<std::uint64_t>(base));
  };
  const auto narrow_range = static_cast<std::uint32_t>(range);
  if (range != 0 && narrow_range == 0 && element_size(type) < 8) {
    throw RangeRefused(
        "anymps: random_ over " + std::to_string(range) + " values into " + scalar_name(type) +
        ": Metal takes the range modulo 2^32, here 0, and divides by it. Use a range below 2^32 or an int64 tensor.");
  }
  with_kernel<Every>("random_int", type, [&](auto tag) {
    using T = decltype(tag);
    auto* target = static_cast<T*>(out);
    if constexpr (sizeof(T) == 8) {
      fill<2, std::int64_t>(
          state, target, n, launch,
          [=](const Lanes& lanes, std::int64_t* values) {
            for (int i = 0; i < kLanes; ++i) {
              for (int j = 0; j < 2; ++j) {
                const std::uint64_t word = (std::uint64_t{lanes.word[2 * j][i]} << 32) | lanes.word[2 * j + 1][i];
                values[2 * i + j] = shifted(range == 0 ? word : word % range);
              }
            }
          },
          from_integer<T>);
    } else {
      fill<4, std::int64_t>(
          state, target, n, launch,
          [=](const Lanes& lanes, std::int64_t* values) {
            for (int i = 0; i < kLanes; ++i) {
              for (int j = 0; j < 4; ++j) {
                const std::uint32_t word = lanes.word[j][i];
                const auto whole = static_cast<std::int64_t>(static_cast<std::int32_t>(word));
                values[4 * i + j] = shifted(range == 0 ? static_cast<std::uint64_t>(whole) : word % narrow_range);
              }
            }
          },
          from_integer<T>);
    }
  });
}

std::uint64_t default_random_range(ElementType type) {
  switch (type) {
    case ElementType::f32: return std::uint64_t{1} << 24;
    case ElementType::f16: return std::uint64_t{1} << 11;
    case ElementType::bf16: return std::uint64_t{1} << 8;
    case ElementType::u8: return 256;
    case ElementType::i8: return 128;
    case ElementType::i16: return std::uint64_t{1} << 15;
    case ElementType::i32: return std::uint64_t{1} << 31;
    case ElementType::i64: return (std::uint64_t{1} << 63) - 1;
    case ElementType::boolean: return 2;
    default: break;
  }
  throw DispatchMissing(
      std::string("\"random_kernel_mps_range_calc\" not implemented for '") + scalar_name(type) + "'");
}

float dropout_scale(double p) {
  const auto kept = static_cast<float>(1.0 - p);
  return kept == 0.0f ? 0.0f : 1.0f / kept;
}

void native_dropout(RandomState& state, void* output, std::uint8_t* mask, const void* input, std::int64_t n,
                    ElementType type, double p, const Launch& launch) {
  using namespace philox;
  if (n <= 0) return;
  with_kernel<Floating>("dropout_fwd", type, [&](auto tag) {
    using T = decltype(tag);
    const auto kept = static_cast<float>(1.0 - p);
    const float scale = dropout_scale(p);
    const std::uint64_t offset = state.offset;
    state.offset += static_cast<std::uint64_t>(ceil_div(n, 4));
    launch_blocks<4>(state.seed, offset, n, launch, [=](const Lanes& lanes, std::int64_t first, int count) {
      for (int i = 0; i < count; ++i) {
        const bool keep = to_unit(lanes.word[i % 4][i / 4]) < kept;
        if (mask != nullptr) mask[first + i] = keep;
        if (output != nullptr) {
          const float value = keep ? to_float(static_cast<const T*>(input)[first + i]) * scale : 0.0f;
          static_cast<T*>(output)[first + i] = from_float<T>(value);
        }
      }
    });
  });
}

}  // namespace anymps
