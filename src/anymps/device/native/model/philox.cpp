// The Metal Philox stream and the distributions over it. Rules, sources and exactness: philox.h.
#include "model/philox.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <numeric>
#include <sstream>
#include <type_traits>

// a + b * c stays two roundings, on every compiler and CPU: otherwise the same seed would give other last bits on ARM
// (or with -march flags) than on plain x86-64.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

namespace anymps {
namespace {

constexpr float kEpsilon = FLT_EPSILON;
constexpr float kSmallestStep = 5.9604644775390625e-8f;  // 2^-24
constexpr float kPi = 3.14159265358979323846f;
constexpr float kUnitScale = 4.6566127342e-10f;  // rounds to 2^-31 * (1 - 2^-24), so 2^31 times it stays below 1
constexpr std::int64_t kSamplerStride = 32;      // blocks between the streams of two elements of a sampler
constexpr std::int64_t kSmallPermutation = 384;
constexpr std::int64_t kLargePermutation = std::int64_t{1} << 15;
constexpr int kPermutationKeyBits = 24;

template <class To, class From>
To bit_cast_to(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// ---------------------------------------------------------------------------------------------------- engine

constexpr int kRounds = 9;
constexpr int kLanes = 16;  // blocks made side by side; the inner loops over it are what compilers vectorise

// Words 0 to 3 of kLanes consecutive blocks.
struct Lanes {
  std::uint32_t word[4][kLanes];
};

class Stream {
 public:
  explicit Stream(std::uint64_t seed) {
    auto x = static_cast<std::uint32_t>(seed >> 32);
    auto y = static_cast<std::uint32_t>(seed);
    for (int round = 0; round < kRounds; ++round) {
      key_x_[round] = x;
      key_y_[round] = y;
      x += 0x9E3779B9U;
      y += 0xBB67AE85U;
    }
  }

  // Template on the width so that one block and many share the one definition of a round.
  template <int Width>
  void generate(std::uint64_t first, std::uint32_t (&word)[4][Width]) const {
    for (int i = 0; i < Width; ++i) {
      const std::uint64_t index = first + static_cast<std::uint64_t>(i);
      word[0][i] = 0;
      word[1][i] = 0;
      word[2][i] = static_cast<std::uint32_t>(index >> 32);
      word[3][i] = static_cast<std::uint32_t>(index);
    }
    for (int round = 0; round < kRounds; ++round) {
      const std::uint32_t key_x = key_x_[round];
      const std::uint32_t key_y = key_y_[round];
      for (int i = 0; i < Width; ++i) {
        const std::uint64_t a = std::uint64_t{0xD2511F53U} * word[0][i];
        const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * word[2][i];
        word[0][i] = static_cast<std::uint32_t>(b >> 32) ^ word[1][i] ^ key_x;
        word[1][i] = static_cast<std::uint32_t>(b);
        word[2][i] = static_cast<std::uint32_t>(a >> 32) ^ word[3][i] ^ key_y;
        word[3][i] = static_cast<std::uint32_t>(a);
      }
    }
  }

  std::array<std::uint32_t, 4> block(std::uint64_t index) const {
    std::uint32_t word[4][1];
    generate(index, word);
    return {word[0][0], word[1][0], word[2][0], word[3][0]};
  }

 private:
  std::uint32_t key_x_[kRounds];
  std::uint32_t key_y_[kRounds];
};

inline float to_unit(std::uint32_t word) {
  // Through a signed integer: exact for 31 bits, and the only conversion that baseline x86 has in vector form.
  return static_cast<float>(static_cast<std::int32_t>(word & 0x7FFFFFFFU)) * kUnitScale;
}

// Two normals from two words, the radius kept finite by the clamp.
inline void box_muller(std::uint32_t a, std::uint32_t b, float* z) {
  const float radius = std::sqrt(-2.0f * std::log(std::max(to_unit(a), kEpsilon)));
  const float angle = 2.0f * kPi * to_unit(b);
  z[0] = radius * std::cos(angle);
  z[1] = radius * std::sin(angle);
}

inline void normals(const Lanes& lanes, int lane, float* z) {
  box_muller(lanes.word[0][lane], lanes.word[1][lane], z);
  box_muller(lanes.word[2][lane], lanes.word[3][lane], z + 2);
}

// ---------------------------------------------------------------------------------------------------- element types

struct Half {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};

template <class T>
struct Element;
#define ANYMPS_ELEMENT(TYPE, TAG, METAL, SCALAR)            \
  template <>                                               \
  struct Element<TYPE> {                                    \
    static constexpr ElementType type = ElementType::TAG;   \
    static constexpr const char* metal = METAL;             \
    static constexpr const char* scalar = SCALAR;           \
  };
ANYMPS_ELEMENT(float, f32, "float", "Float")
ANYMPS_ELEMENT(Half, f16, "half", "Half")
ANYMPS_ELEMENT(BFloat16, bf16, "bfloat", "BFloat16")
ANYMPS_ELEMENT(std::uint8_t, u8, "uchar", "Byte")
ANYMPS_ELEMENT(std::int8_t, i8, "char", "Char")
ANYMPS_ELEMENT(std::int16_t, i16, "short", "Short")
ANYMPS_ELEMENT(std::int32_t, i32, "int", "Int")
ANYMPS_ELEMENT(std::int64_t, i64, "long", "Long")
ANYMPS_ELEMENT(std::uint16_t, u16, "ushort", "UInt16")
ANYMPS_ELEMENT(std::uint32_t, u32, "uint", "UInt32")
ANYMPS_ELEMENT(std::uint64_t, u64, "ulong", "UInt64")
ANYMPS_ELEMENT(bool, boolean, "bool", "Bool")
#undef ANYMPS_ELEMENT

template <class... Ts>
struct Types {};
using Floating = Types<float, Half, BFloat16>;
using Geometric = Types<float, Half, BFloat16, std::int32_t, std::int64_t, std::int16_t, std::int8_t, std::uint8_t>;
using Bernoulli =
    Types<float, Half, BFloat16, bool, std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t>;
using Every = Types<float, Half, BFloat16, std::uint8_t, std::int8_t, std::int16_t, std::int32_t, std::int64_t,
                    std::uint16_t, std::uint32_t, std::uint64_t, bool>;

// Calls f(T{}) for the T of `type`; false when it is not in the list.
template <class... Ts, class F>
bool visit(Types<Ts...>, ElementType type, F&& f) {
  return ((Element<Ts>::type == type ? (f(Ts{}), true) : false) || ...);
}

// The list is the set of instantiations of the Metal kernel, so a type outside it fails as the kernel look-up does.
template <class List, class F>
void with_kernel(const char* kernel, ElementType type, F&& f) {
  if (!visit(List{}, type, f)) {
    throw KernelMissing(std::string("Failed to create function state object for: ") + kernel + "_" + metal_name(type));
  }
}

template <class T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else if constexpr (std::is_same_v<T, Half>) {
    return {float_to_half(value)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {float_to_bfloat16(value)};
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0.0f;
  } else {
    // Bounds as powers of two, which float holds exactly; NaN falls through to zero.
    using Limits = std::numeric_limits<T>;
    const float beyond = std::ldexp(1.0f, Limits::digits);
    if (value >= beyond) return Limits::max();
    if (value <= (Limits::is_signed ? -beyond : 0.0f)) return Limits::min();
    return value == value ? static_cast<T>(value) : T{0};
  }
}

template <class T>
T from_integer(std::int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(value));
  } else {
    return from_float<T>(static_cast<float>(value));
  }
}

template <class T>
T from_flag(bool flag) {
  if constexpr (std::is_same_v<T, Half>) {
    return {static_cast<std::uint16_t>(flag ? 0x3C00 : 0)};
  } else if constexpr (std::is_same_v<T, BFloat16>) {
    return {static_cast<std::uint16_t>(flag ? 0x3F80 : 0)};
  } else {
    return static_cast<T>(flag);
  }
}

inline float to_float(float value) { return value; }
inline float to_float(Half value) { return half_to_float(value.bits); }
inline float to_float(BFloat16 value) { return bfloat16_to_float(value.bits); }

// ---------------------------------------------------------------------------------------------------- launching

void run(const Launch& launch, std::int64_t count, const ParallelBody& body) {
  if (launch.parallel_for && count > 1) {
    launch.parallel_for(count, body);
  } else {
    body(0, count);
  }
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

// One launch over n elements: `write(lanes, first, count)` receives the words of up to kLanes blocks and writes
// elements [first, first + count). How many lanes a call uses depends on the split, the words of a block do not.
template <int PerBlock, class Write>
void launch_blocks(std::uint64_t seed, std::uint64_t offset, std::int64_t n, const Launch& launch, const Write& write) {
  const Stream stream(seed);
  run(launch, ceil_div(n, PerBlock), [&](std::int64_t begin, std::int64_t end) {
    Lanes lanes;
    for (std::int64_t block = begin; block < end; block += kLanes) {
      stream.generate(offset + static_cast<std::uint64_t>(block), lanes.word);
      const std::int64_t first = block * PerBlock;
      const std::int64_t blocks = std::min<std::int64_t>(kLanes, end - block);
      write(lanes, first, static_cast<int>(std::min(blocks * PerBlock, n - first)));
    }
  });
}

// `make(lanes, values)` turns kLanes blocks into kLanes * PerBlock values of type V; `cast` gives the element type.
template <int PerBlock, class V, class T, class Make, class Cast>
void fill(RandomState& state, T* out, std::int64_t n, const Launch& launch, const Make& make, const Cast& cast) {
  for (const std::int64_t piece : launch_sizes(n, sizeof(T), launch.index_limit)) {
    const std::uint64_t offset = state.offset;
    state.offset += static_cast<std::uint64_t>(ceil_div(piece, PerBlock));
    launch_blocks<PerBlock>(state.seed, offset, piece, launch, [&](const Lanes& lanes, std::int64_t first, int count) {
      V values[kLanes * PerBlock];
      make(lanes, values);
      for (int i = 0; i < count; ++i) out[first + i] = cast(values[i]);
    });
    out += piece;
  }
}

// A float distribution whose elements each depend on one word.
template <class T, class Formula, class Narrow>
void fill_by_word(RandomState& state, T* out, std::int64_t n, const Launch& launch, const Formula& formula,
                  const Narrow& narrow) {
  fill<4, float>(
      state, out, n, launch,
      [&](const Lanes& lanes, float* values) {
        for (int i = 0; i < kLanes; ++i) {
          for (int j = 0; j < 4; ++j) values[4 * i + j] = formula(to_unit(lanes.word[j][i]));
        }
      },
      narrow);
}

template <class T, class Formula>
void fill_by_word(RandomState& state, T* out, std::int64_t n, const Launch& launch, const Formula& formula) {
  fill_by_word(state, out, n, launch, formula, from_float<T>);
}

template <class T, class Formula>
void fill_by_normal(RandomState& state, T* out, std::int64_t n, const Launch& launch, const Formula& formula) {
  fill<4, float>(
      state, out, n, launch,
      [&](const Lanes& lanes, float* values) {
        for (int i = 0; i < kLanes; ++i) {
          normals(lanes, i, values + 4 * i);
          for (int j = 0; j < 4; ++j) values[4 * i + j] = formula(values[4 * i + j]);
        }
      },
      from_float<T>);
}

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

// ---------------------------------------------------------------------------------------------------- sampling rules

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
      root = 1.0f + c * x;
    } while (root <= 0.0f);
    const float v = root * root * root;
    const float u = 1.0f - draws.uniform();
    const float square = x * x;
    const bool inside = u < 1.0f - 0.0331f * square * square;
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

// ---------------------------------------------------------------------------------------------------- permutations

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

// ---------------------------------------------------------------------------------------------------- public: engine

std::array<std::uint32_t, 4> philox_block(std::uint64_t seed, std::uint64_t index) {
  return Stream(seed).block(index);
}

float unit(std::uint32_t word) { return to_unit(word); }

// ---------------------------------------------------------------------------------------------------- public: state

void RandomState::manual_seed(std::uint64_t new_seed) {
  seed = new_seed;
  offset = 0;
  std::fill(words, words + 5, 1U);
  words[5] = static_cast<std::uint32_t>(new_seed);
  words[6] = static_cast<std::uint32_t>(new_seed >> 32);
}

std::array<std::uint8_t, kRandomStateBytes> RandomState::serialize() const {
  std::array<std::uint8_t, kRandomStateBytes> bytes{};
  std::size_t at = 0;
  const auto put = [&](std::uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes[at++] = static_cast<std::uint8_t>(value >> (8 * i));
  };
  for (const std::uint32_t word : words) put(word, 4);
  put(seed, 8);
  put(offset, 8);
  return bytes;
}

RandomState RandomState::deserialize(const void* bytes, std::size_t size) {
  if (size != kRandomStateBytes) throw std::runtime_error("RNG state is wrong size");
  const auto* at = static_cast<const std::uint8_t*>(bytes);
  const auto take = [&](int count) {
    std::uint64_t value = 0;
    for (int i = 0; i < count; ++i) value |= std::uint64_t{*at++} << (8 * i);
    return value;
  };
  RandomState state;
  for (std::uint32_t& word : state.words) word = static_cast<std::uint32_t>(take(4));
  state.seed = take(8);
  state.offset = take(8);
  return state;
}

// ---------------------------------------------------------------------------------------------------- public: types

std::size_t element_size(ElementType type) {
  std::size_t size = 0;
  visit(Every{}, type, [&](auto tag) { size = sizeof(tag); });
  return size;
}

const char* metal_name(ElementType type) {
  const char* name = "";
  visit(Every{}, type, [&](auto tag) { name = Element<decltype(tag)>::metal; });
  return name;
}

const char* scalar_name(ElementType type) {
  const char* name = "";
  visit(Every{}, type, [&](auto tag) { name = Element<decltype(tag)>::scalar; });
  return name;
}

std::uint16_t float_to_half(float value) {
  auto bits = bit_cast_to<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  bits &= 0x7FFFFFFFU;
  if (bits >= 0x47800000U) {  // 65536 and more, infinity, NaN
    return static_cast<std::uint16_t>(sign | (bits > 0x7F800000U ? 0x7E00U : 0x7C00U));
  }
  if (bits < 0x38800000U) {  // subnormal half: adding 1/2 rounds to its unit, 2^-24
    const float aligned = bit_cast_to<float>(bits) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bit_cast_to<std::uint32_t>(aligned) - 0x3F000000U));
  }
  bits += 0x0FFFU + ((bits >> 13) & 1U);  // may carry into infinity, rightly
  return static_cast<std::uint16_t>(sign | ((bits - 0x38000000U) >> 13));
}

float half_to_float(std::uint16_t half) {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t rest = half & 0x7FFFU;
  if (rest >= 0x7C00U) return bit_cast_to<float>(sign | 0x7F800000U | ((rest & 0x03FFU) << 13));
  if (rest >= 0x0400U) return bit_cast_to<float>(sign | ((rest << 13) + 0x38000000U));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return bit_cast_to<float>(sign | bit_cast_to<std::uint32_t>(magnitude));
}

std::uint16_t float_to_bfloat16(float value) {
  const auto bits = bit_cast_to<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>(((bits >> 16) & 0x8000U) | 0x7FC0U);
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

float bfloat16_to_float(std::uint16_t bits) { return bit_cast_to<float>(static_cast<std::uint32_t>(bits) << 16); }

namespace random_texts {

std::string random_kind() { return "random_mps handles only integral, floating-point and boolean types"; }

std::string bernoulli_probability(double p) {
  std::ostringstream text;  // prints a double as torch's checks do
  text << "bernoulli_mps_ expects p to be in [0, 1], but got p=" << p;
  return text.str();
}

std::string bernoulli_shape() { return "bernoulli_mps_: probability and self tensor should be of the same shape"; }

std::string randperm_count(std::int64_t n) { return "n must be non-negative, got" + std::to_string(n); }

std::string generator_type(const std::string& found) {
  return "Expected a 'mps' device type for generator but found '" + found + "'";
}

std::string generator_device(const std::string& found) {
  return "Expected a 'mps:0' generator device but found '" + found + "'";
}

}  // namespace random_texts

std::vector<std::int64_t> launch_sizes(std::int64_t n, std::size_t bytes_per_element, std::int64_t index_limit) {
  std::vector<std::int64_t> sizes;
  if (n <= 0) return sizes;
  const auto bytes = static_cast<std::int64_t>(bytes_per_element);
  std::vector<std::int64_t> pending{n};
  while (!pending.empty()) {
    const std::int64_t size = pending.back();
    pending.pop_back();
    if (size == 1 || (size <= index_limit && size - 1 <= (index_limit - 1) / bytes)) {
      sizes.push_back(size);
    } else {
      pending.push_back(size - size / 2);
      pending.push_back(size / 2);
    }
  }
  return sizes;
}

// ---------------------------------------------------------------------------------------------------- public: fills

void fill_uniform(RandomState& state, void* out, std::int64_t n, ElementType type, double from, double to,
                  const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("uniform_dist", type, [&](auto tag) {
    using T = decltype(tag);
    const auto low = static_cast<float>(from);
    const auto high = static_cast<float>(to);
    const float scale = high - low;
    const auto formula = [=](float u) { return low + scale * u; };
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
  const bool floating = visit(Floating{}, type, [&](auto tag) {
    const auto centre = static_cast<float>(mean);
    const auto width = static_cast<float>(std);
    fill_by_normal(state, static_cast<decltype(tag)*>(out), n, launch, [=](float z) { return centre + width * z; });
  });
  if (!floating) throw TypeRefused(std::string("normal_kernel_mps not implemented for '") + scalar_name(type) + "'");
}

void fill_exponential(RandomState& state, void* out, std::int64_t n, ElementType type, double lambda,
                      const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("exponential", type, [&](auto tag) {
    const auto rate = static_cast<float>(lambda);
    const float least = launch.release < 14 ? 0.0f : kSmallestStep;
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch, [=](float u) {
      return -std::log(1.0f - std::min(std::max(u, least), 1.0f - kEpsilon)) / rate;
    });
  });
}

void fill_cauchy(RandomState& state, void* out, std::int64_t n, ElementType type, double median, double sigma,
                 const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("cauchy", type, [&](auto tag) {
    const auto centre = static_cast<float>(median);
    const auto width = static_cast<float>(sigma);
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch, [=](float u) {
      return centre + width * std::tan(kPi * (std::min(std::max(u, kEpsilon), 1.0f - kEpsilon) - 0.5f));
    });
  });
}

void fill_log_normal(RandomState& state, void* out, std::int64_t n, ElementType type, double mean, double std,
                     const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("log_normal", type, [&](auto tag) {
    const auto centre = static_cast<float>(mean);
    const auto width = static_cast<float>(std);
    fill_by_normal(state, static_cast<decltype(tag)*>(out), n, launch,
                   [=](float z) { return std::exp(centre + width * z); });
  });
}

void fill_geometric(RandomState& state, void* out, std::int64_t n, ElementType type, double p, const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Geometric>("geometric", type, [&](auto tag) {
    const auto log_failure = static_cast<float>(std::log1p(-p));  // in double on the host, as there
    fill_by_word(state, static_cast<decltype(tag)*>(out), n, launch,
                 [=](float u) { return std::ceil(std::log(std::max(u, kEpsilon)) / log_failure); });
  });
}

void fill_bernoulli(RandomState& state, void* out, std::int64_t n, ElementType type, double p, const Launch& launch) {
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

// ---------------------------------------------------------------------------------------------------- public: samplers

void sample_standard_gamma(RandomState& state, void* out, const void* alpha, std::int64_t n, ElementType type,
                           const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("standard_gamma", type, [&](auto tag) {
    using T = decltype(tag);
    sample_each(state, n, launch, [=](std::int64_t i, Draws& draws) {
      static_cast<T*>(out)[i] = from_float<T>(draw_gamma(to_float(static_cast<const T*>(alpha)[i]), draws));
    });
  });
}

void sample_dirichlet(RandomState& state, void* out, const void* alpha, std::int64_t rows, std::int64_t columns,
                      ElementType type, const Launch& launch) {
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

void sample_poisson(RandomState& state, void* out, const void* rate, std::int64_t n, ElementType type,
                    const Launch& launch) {
  if (n <= 0) return;
  with_kernel<Floating>("poisson", type, [&](auto tag) {
    using T = decltype(tag);
    sample_each(state, n, launch, [=](std::int64_t i, Draws& draws) {
      static_cast<T*>(out)[i] = from_float<T>(draw_poisson(to_float(static_cast<const T*>(rate)[i]), draws));
    });
  });
}

void sample_binomial(RandomState& state, void* out, const void* count, const void* probability, std::int64_t n,
                     ElementType type, const Launch& launch) {
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

// ---------------------------------------------------------------------------------------------------- public: the rest

void randperm(RandomState& state, void* out, std::int64_t n, ElementType type, bool contiguous, const Launch& launch) {
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

float dropout_scale(double p) {
  const auto kept = static_cast<float>(1.0 - p);
  return kept == 0.0f ? 0.0f : 1.0f / kept;
}

void native_dropout(RandomState& state, void* output, std::uint8_t* mask, const void* input, std::int64_t n,
                    ElementType type, double p, const Launch& launch) {
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
