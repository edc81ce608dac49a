// The parts of the random stream, each alone: the engine, element types and launches.
#include "check.h"
#include "model/philox_launch.h"

#include <cmath>

namespace {

using namespace anymps;
using namespace anymps::philox;

TEST(one_block_is_that_of_many) {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{1}, kPhiloxDefaultSeed, ~std::uint64_t{0}}) {
    for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{5}, (std::uint64_t{1} << 32) - 7, ~std::uint64_t{0} - 3}) {
      const Stream stream(seed);
      Lanes lanes;
      stream.generate(first, lanes.word);
      for (int lane = 0; lane < kLanes; ++lane) {
        const auto block = stream.block(first + static_cast<std::uint64_t>(lane));
        for (int word = 0; word < 4; ++word) EXPECT_EQUAL(lanes.word[word][lane], block[static_cast<size_t>(word)]);
      }
    }
  }
}

TEST(units_lie_below_one) {
  EXPECT_EQUAL(to_unit(0), 0.0f);
  EXPECT_EQUAL(to_unit(0x80000000U), 0.0f);  // the highest bit does not count
  EXPECT_EQUAL(to_unit(0xFFFFFFFFU), 1.0f - 0x1p-24f);
}

TEST(every_half_widens_to_its_value) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const float size = std::ldexp(static_cast<float>(fraction + (exponent == 0 ? 0 : 1024)), std::max(exponent, 1) - 25);
    const float wide = from_half(static_cast<std::uint16_t>(bits));
    EXPECT_EQUAL(std::signbit(wide), bits >= 0x8000);
    if (exponent < 31) EXPECT_EQUAL(std::fabs(wide), size);
    if (exponent == 31) EXPECT(fraction == 0 ? std::isinf(wide) : std::isnan(wide) && std::isnan(from_half(to_half(wide))));
  }
}

// Each value of a narrow type comes back, and so does what is nearer to it than to the next; half way, the even one.
template <class Narrow, class Wide>
void rounds_to_nearest_even(Narrow narrow, Wide wide, std::uint16_t infinity) {
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    for (const std::uint16_t sign : {0, 0x8000}) {
      const auto one = static_cast<std::uint16_t>(sign | bits), next = static_cast<std::uint16_t>(one + 1);
      const float low = wide(one);
      // The infinite one counts as the number that would be next.
      const float high = bits + 1 == infinity ? low + (low - wide(static_cast<std::uint16_t>(one - 1))) : wide(next);
      const float middle = low + (high - low) / 2;
      EXPECT_EQUAL(narrow(low), one);
      EXPECT_EQUAL(narrow(middle), bits % 2 == 0 ? one : next);
      EXPECT_EQUAL(narrow(std::nextafter(middle, low)), one);
      EXPECT_EQUAL(narrow(std::nextafter(middle, high)), next);
    }
  }
}

TEST(narrow_floats_round_to_even) {
  rounds_to_nearest_even(to_half, from_half, 0x7C00);
  rounds_to_nearest_even(to_bfloat16, from_bfloat16, 0x7F7F);  // up to the last pair that float32 can tell apart
  EXPECT_EQUAL(to_half(NAN), 0x7E00);
  EXPECT_EQUAL(to_bfloat16(NAN), 0x7FC0);
  EXPECT_EQUAL(to_bfloat16(3.4e38f), 0x7F80);
  EXPECT_EQUAL(to_bfloat16(-INFINITY), 0xFF80);
  EXPECT_EQUAL(from_bfloat16(0x3FC0), 1.5f);
}

TEST(floats_saturate_integers) {
  EXPECT_EQUAL(from_float<std::int8_t>(1e9f), 127);
  EXPECT_EQUAL(from_float<std::int8_t>(-1e9f), -128);
  EXPECT_EQUAL(from_float<std::uint8_t>(-1.0f), 0);
  EXPECT_EQUAL(from_float<std::int64_t>(INFINITY), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQUAL(from_float<std::int32_t>(NAN), 0);
  EXPECT_EQUAL(from_float<bool>(0.5f), true);
}

TEST(integers_wrap) {
  EXPECT_EQUAL(from_integer<std::uint8_t>(257), 1);
  EXPECT_EQUAL(from_integer<std::int8_t>(128), -128);
  EXPECT_EQUAL(from_integer<bool>(2), true);
  EXPECT_EQUAL(from_integer<float>((std::int64_t{1} << 24) + 1), 0x1p24f);
  EXPECT_EQUAL(from_flag<Half>(true).bits, 0x3C00);
  EXPECT_EQUAL(from_flag<BFloat16>(true).bits, 0x3F80);
}

TEST(pieces_of_a_launch_are_all_of_it) {
  for (const std::int64_t n : {1, 7, 100, 101, 1000}) {
    std::int64_t sum = 0;
    for (const std::int64_t piece : launch_sizes(n, 4, 100)) {
      EXPECT(piece == 1 || (piece - 1) * 4 < 100);
      sum += piece;
    }
    EXPECT_EQUAL(sum, n);
  }
  using Sizes = std::vector<std::int64_t>;
  constexpr std::int64_t limit = (std::int64_t{1} << 31) - 1, k28 = 1 << 28, k29 = 1 << 29, k30 = 1 << 30;
  EXPECT(launch_sizes(0, 4).empty());
  EXPECT(launch_sizes(1, 8) == Sizes({1}));
  EXPECT(launch_sizes(k29, 4) == Sizes({k29}));  // its last element starts at byte 2^31 - 4
  EXPECT(launch_sizes(k29 + 1, 4) == Sizes({k28, k28 + 1}));
  EXPECT(launch_sizes(limit, 1) == Sizes({limit}));
  EXPECT(launch_sizes(limit + 1, 1) == Sizes({k30, k30}));
  EXPECT(launch_sizes(limit + 4, 2) == Sizes({k29, k29 + 1, k29 + 1, k29 + 1}));
  EXPECT(launch_sizes(3, 1, 2) == Sizes({1, 2}));  // the lower half is the smaller one
}

// How the work is split is not in the numbers: from the end, in pieces of three.
void backwards(std::int64_t count, const ParallelBody& body) {
  for (std::int64_t end = count; end > 0; end -= 3) body(std::max<std::int64_t>(0, end - 3), end);
}

TEST(numbers_do_not_depend_on_the_split) {
  Launch split;
  split.parallel_for = backwards;
  std::vector<float> whole(1003), parts(1003);
  RandomState a, b;
  fill_normal(a, whole.data(), 1003, ElementType::f32, 0, 1);
  fill_normal(b, parts.data(), 1003, ElementType::f32, 0, 1, split);
  EXPECT(whole == parts);
  EXPECT_EQUAL(a.offset, std::uint64_t{251});
  EXPECT_EQUAL(b.offset, a.offset);
}

}  // namespace

int main(int count, char** names) { return check::run(count, names); }
