// The engine of the Metal Philox stream: blocks of four words, one or many at a time. Inside of the model only.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <cmath>
#include <cstdint>

// a + b * c stays two roundings, on every compiler and CPU: otherwise the same seed would give other last bits on ARM
// (or with -march flags) than on plain x86-64.
#if defined(__clang__)
#pragma clang fp contract(off)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=off")
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

namespace anymps::philox {

inline constexpr float kEpsilon = FLT_EPSILON;
inline constexpr float kPi = 3.14159265358979323846f;
inline constexpr float kUnitScale = 4.6566127342e-10f;  // rounds to 2^-31 * (1 - 2^-24), so 2^31 times it stays below 1

inline constexpr int kRounds = 9;  // the Metal loop runs `rounds - 1` times with rounds = 10: not the standard Philox-4x32-10 of CUDA
inline constexpr int kLanes = 16;  // blocks made side by side; the inner loops over it are what compilers vectorise

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

// a * b + c, rounded once, as Metal's kernels do it (llvm.fmuladd in the wheels' bitcode): a product of two float32 is
// exact in double.
inline float fused(float a, float b, float c) {
  return static_cast<float>(static_cast<double>(a) * static_cast<double>(b) + static_cast<double>(c));
}

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

}  // namespace anymps::philox
