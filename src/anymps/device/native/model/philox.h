// Random numbers of torch 2.13 to 2.15 on mps: PyTorch's own Metal Philox stream, in plain C++17.
//
// Standard library only; these files know nothing of torch and are tested alone (tests/core/test_philox.py).
// Every function fills a raw contiguous buffer in row-major order and moves `RandomState::offset` on exactly as the
// Metal host code does. The numbers depend on (seed, offset, call) only: never on threads or on how work is split.
//
// Sources
//   engine, uniform, Box-Muller   c10/metal/random.h, in the torch 2.13.0 wheel's include folder
//   kernels, offsets              pytorch aten/src/ATen/native/mps/{kernels,operations}/Distributions.{metal,mm},
//                                 kernels/Dropout.metal; snapshots of main between 2.12 and 2.14 (pull requests 182210,
//                                 182386, 182528, 184085, 173319, 187078); their bitcode in the Metal libraries of the
//                                 macOS wheels 2.13.0, 2.14.0 and 2.15.0, compared kernel by kernel
//   splitting of huge tensors     pytorch aten/src/ATen/TensorIterator.cpp
//   44-byte state                 ATen/mps/MPSGeneratorImpl.h in the 2.13.0 wheel
//
// How exact
//   bit for bit    blocks, uniform in [0, 1), bernoulli, random_int, dropout masks, randperm except for equal float
//                  keys (384 < n < 32768), whose order we take as stable
//   last bits      anything through log, exp, sin, cos, tan, pow or sqrt (Metal's library and the host's round
//                  differently), and a + b*c where the Metal compiler may fuse. We never fuse: see philox_engine.h
//   by algorithm   gamma, dirichlet, poisson, binomial: a draw sitting on an acceptance border may go the other way
//
// Versions, `Launch::release`: poisson and binomial have Metal kernels from 2.14 on; in 2.13 they are operators of the CPU
// alone. From 2.14 on `exponential` takes no uniform below 2^-24 (pull request 192621), so that it is never zero; from 2.15
// on `uniform_` gives its lower bound where rounding to the element type would give the upper one. All else is the same.
//
// Hold the generator's mutex around every call: it reads and advances the offset.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <vector>

namespace anymps {

// ---------------------------------------------------------------------------------------------------- state

inline constexpr std::size_t kRandomStateBytes = 44;
inline constexpr std::uint64_t kPhiloxDefaultSeed = 67280421310721ULL;

// What an mps generator holds. `words` only feeds the MPSGraph engine (2.13 and later: LSTM dropout alone); the
// Metal kernels read seed and offset. The unit of `offset` is one block; it need not be a multiple of four.
struct RandomState {
  std::uint64_t seed = kPhiloxDefaultSeed;
  std::uint64_t offset = 0;
  std::uint32_t words[7] = {1, 0, 0, 0, 0, 0, 0};  // a generator nobody seeded yet

  // Sets the seed, rewinds the offset, words = {1, 1, 1, 1, 1, low half, high half}.
  void manual_seed(std::uint64_t new_seed);

  // 7 words, seed, offset, all little endian: what torch.mps.get_rng_state() returns.
  std::array<std::uint8_t, kRandomStateBytes> serialize() const;

  // Throws std::runtime_error("RNG state is wrong size") unless size is 44. Never checks the content, as the backend.
  static RandomState deserialize(const void* bytes, std::size_t size);
};

// ---------------------------------------------------------------------------------------------------- types

enum class ElementType : std::uint8_t { f32, f16, bf16, u8, i8, i16, i32, i64, u16, u32, u64, boolean };

std::size_t element_size(ElementType type);
const char* metal_name(ElementType type);   // "float", "half", "bfloat", "uchar", ... as in Metal kernel names
const char* scalar_name(ElementType type);  // "Float", "Half", "BFloat16", "Byte", ... as torch prints a ScalarType

// No Metal kernel for this element type. RuntimeError; the text is the backend's.
struct KernelMissing : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// TypeError of normal_ on a type that is not floating; the text is the backend's.
struct TypeRefused : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
// NotImplementedError of torch's type dispatch; the text is the backend's.
struct DispatchMissing : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};
// Our own refusal: Metal would divide by zero here. Says so.
struct RangeRefused : std::domain_error {
  using std::domain_error::domain_error;
};

// ---------------------------------------------------------------------------------------------------- launching

// Calls body(begin, end) over a partition of [0, count), in any order and on any threads, and returns when all is
// done. body never throws. For torch: [](auto count, auto& body) { at::parallel_for(0, count, 4096, body); }
using ParallelBody = std::function<void(std::int64_t begin, std::int64_t end)>;
using ParallelFor = std::function<void(std::int64_t count, const ParallelBody& body)>;

struct Launch {
  ParallelFor parallel_for;  // empty: serial
  // The minor release of torch 2 whose kernels are followed: 13, 14 or 15.
  int release = 13;
  // TensorIterator's bound for 32-bit indexing. A smaller one serves only to test the splitting.
  std::int64_t index_limit = std::numeric_limits<std::int32_t>::max();
};

// Sizes of the pieces in which the host runs a distribution over n contiguous elements. One piece unless the count or
// the byte offset of the last element passes the limit; then halves, the lower one (rounded down) first. Each piece
// starts at a fresh block, so an odd split shifts the stream.
std::vector<std::int64_t> launch_sizes(std::int64_t n, std::size_t bytes_per_element,
                                       std::int64_t index_limit = std::numeric_limits<std::int32_t>::max());

// ---------------------------------------------------------------------------------------------------- fills
// `out`: n elements of `type`. Parameters arrive as double and are rounded to float32, as the host does. n = 0 does
// nothing. Four elements a block; offset += ceil(n / 4) for each piece of launch_sizes.

// from + (to - from) * U. float, half, bfloat. After rounding to a narrow type a value may equal `to`; from 2.15 on such a
// value is `from`.
void fill_uniform(RandomState& state, void* out, std::int64_t n, ElementType type, double from, double to,
                  const Launch& launch = {});
// mean + std * z (Box-Muller). float, half, bfloat; others throw TypeRefused. With tensors for mean or std, fill with
// (0, 1) and let the caller multiply and add.
void fill_normal(RandomState& state, void* out, std::int64_t n, ElementType type, double mean, double std,
                 const Launch& launch = {});
// -ln(1 - min(U, 1 - eps)) / lambda. float, half, bfloat. In 2.13 it may yield -0.0 (pytorch issue 192577); from 2.14 on
// U counts as at least 2^-24.
void fill_exponential(RandomState& state, void* out, std::int64_t n, ElementType type, double lambda,
                      const Launch& launch = {});
// median + sigma * tan(pi * (clamp(U, eps, 1 - eps) - 1/2)). float, half, bfloat.
void fill_cauchy(RandomState& state, void* out, std::int64_t n, ElementType type, double median, double sigma,
                 const Launch& launch = {});
// exp(mean + std * z). float, half, bfloat.
void fill_log_normal(RandomState& state, void* out, std::int64_t n, ElementType type, double mean, double std,
                     const Launch& launch = {});
// ceil(ln(max(U, eps)) / log1p(-p)). float, half, bfloat, int, long, short, char, uchar. A value beyond an integer
// type's range saturates: ours, Metal leaves it open.
void fill_geometric(RandomState& state, void* out, std::int64_t n, ElementType type, double p,
                    const Launch& launch = {});
// U < p. float, half, bfloat, bool, uchar, char, short, int, long.
void fill_bernoulli(RandomState& state, void* out, std::int64_t n, ElementType type, double p,
                    const Launch& launch = {});
// U < probabilities[i], one float32 an element. Four elements a block, yet offset += n. Never split. Probabilities
// outside [0, 1] are not checked here (a later kernel reports them through the device's error buffer).
void fill_bernoulli_tensor(RandomState& state, void* out, const float* probabilities, std::int64_t n, ElementType type,
                           const Launch& launch = {});

// base + word mod range, every type. `range` 0 = the type's whole width: the word itself, as a signed 32-bit number
// (up to 4 bytes, four elements a block) or two words, high first (8 bytes, two elements a block, offset +=
// ceil(n / 2)). 2^64 - 1 counts as 0, as in the host code. For up to 4 bytes only the low half of range is used; where
// that half is zero and range is not, Metal divides by zero and we throw RangeRefused.
void fill_random_int(RandomState& state, void* out, std::int64_t n, ElementType type, std::int64_t base,
                     std::uint64_t range, const Launch& launch = {});
// Range of random_() without arguments: 2^digits for floats, max + 1 for integers and bool, 2^63 - 1 for long.
// uint16/32/64 throw DispatchMissing.
std::uint64_t default_random_range(ElementType type);

// ---------------------------------------------------------------------------------------------------- samplers
// One stream of blocks an element: base offset + 32 * element; only the first word (uniform) or the first two (normal)
// of a block count. offset += 32 * n. Rejection loops are not stopped at 32 blocks, neither here nor on Metal. Inputs
// and output have `type`: float, half or bfloat; arithmetic is float32. Inputs on which a Metal loop would never end
// (NaN, most negative alphas, infinite counts) give NaN: ours.

// Marsaglia-Tsang with the power boost below 1, results at least FLT_MIN, alpha 0 gives 0. Not bit-exact: known from
// Distributions.metal only as an algorithm over this stream, so last bits and border draws may differ.
void sample_standard_gamma(RandomState& state, void* out, const void* alpha, std::int64_t n, ElementType type,
                           const Launch& launch = {});
// rows of gamma / sum, clamped to [FLT_MIN, 1 - eps]. Not bit-exact: besides the gamma draws, the order of the sum is
// ours (left to right), and half and bfloat keep float32 gammas until the end.
void sample_dirichlet(RandomState& state, void* out, const void* alpha, std::int64_t rows, std::int64_t columns,
                      ElementType type, const Launch& launch = {});
// 2.14. Knuth below 10, Hoermann's transformed rejection from 10; not positive or not finite rates give 0.
// Not bit-exact (log-gamma in the acceptance test).
void sample_poisson(RandomState& state, void* out, const void* rate, std::int64_t n, ElementType type,
                    const Launch& launch = {});
// 2.14. Inversion while count * p < 10, else BTRS; p above 1/2 is mirrored. Not bit-exact (log and the acceptance test).
void sample_binomial(RandomState& state, void* out, const void* count, const void* probability, std::int64_t n,
                     ElementType type, const Launch& launch = {});

// ---------------------------------------------------------------------------------------------------- compositions

// Permutation of [0, n). Paths of torch 2.13, by size:
//   n <= 384, int or long, contiguous   Fisher-Yates from the top, four words a block; offset += ceil((n - 1) / 4)
//   n >= 32768                          24-bit keys (ceil(n / 4) blocks), stable radix argsort, then Fisher-Yates in
//                                       each run of equal keys from block `offset + run start`; offset += n more
//   otherwise                           argsort of uniform float keys, taken as stable; offset += ceil(n / 4)
// `contiguous`: whether the caller's result tensor was. Any element type; whether n fits it is the caller's check.
// Throws std::length_error for n above 2^32 - 1.
void randperm(RandomState& state, void* out, std::int64_t n, ElementType type, bool contiguous = true,
              const Launch& launch = {});

// `out`: [rows, samples] indices; `weights`: [rows, categories] of float, half or bfloat, checked by the caller.
// samples == 1 or no replacement: largest weight / Exp(1), the division rounded to `type`; equal ratios in index order
// (ours). Otherwise: first place where a float32 running sum (left to right: ours) reaches U * total.
// Returns the number of rows in which an Exp(1) draw was zero. There 2.13 computes 0 / -0 = NaN and can choose a
// category of weight zero (pytorch issue 192577); here such a category has ratio 0 and is never preferred, so the
// caller can report a hazard instead.
std::int64_t multinomial(RandomState& state, std::int64_t* out, const void* weights, std::int64_t rows,
                         std::int64_t categories, std::int64_t samples, bool replacement, ElementType type,
                         const Launch& launch = {});

// Training-mode dropout: mask = U < 1 - p, output = mask ? input * scale : 0, four elements a block; offset +=
// ceil(n / 4), where the operator skips a block an element (caller's). `output` (of `type`) and `mask` (one byte an
// element) may be null. p = 0 and evaluation mode never reach the kernel: caller's branch.
void native_dropout(RandomState& state, void* output, std::uint8_t* mask, const void* input, std::int64_t n,
                    ElementType type, double p, const Launch& launch = {});
// 1 / (1 - p) in float32, 0 for p = 1.
float dropout_scale(double p);

}  // namespace anymps
