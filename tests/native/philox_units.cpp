// The parts of the random stream, each alone: the engine, element types, launches and the state.
#include "check.h"
#include "model/philox_launch.h"

#include <cmath>
#include <cstring>

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

TEST(every_half_survives_the_way_through_float) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float wide = from_half(half);
    if ((bits & 0x7FFFU) > 0x7C00U) {
      EXPECT(std::isnan(wide) && std::isnan(from_half(to_half(wide))));
    } else {
      EXPECT_EQUAL(to_half(wide), half);
    }
  }
}

TEST(narrow_floats_round_to_even) {
  EXPECT_EQUAL(to_half(1.0f + 0x1p-11f), 0x3C00);              // half way between 1 and the next
  EXPECT_EQUAL(to_half(1.0f + 3 * 0x1p-11f), 0x3C02);          // half way between the next two
  EXPECT_EQUAL(to_half(1.0f + 0x1p-11f + 0x1p-20f), 0x3C01);   // past half way
  EXPECT_EQUAL(to_half(65519.0f), 0x7BFF);
  EXPECT_EQUAL(to_half(65520.0f), 0x7C00);                     // infinity
  EXPECT_EQUAL(to_half(0x1p-25f), 0);                          // half of the smallest
  EXPECT_EQUAL(to_bfloat16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQUAL(to_bfloat16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_EQUAL(to_bfloat16(-INFINITY), 0xFF80);
  EXPECT(std::isnan(from_bfloat16(to_bfloat16(NAN))));
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

TEST(types_have_the_names_of_metal_and_torch) {
  EXPECT_EQUAL(std::string(metal_name(ElementType::bf16)), std::string("bfloat"));
  EXPECT_EQUAL(std::string(scalar_name(ElementType::u8)), std::string("Byte"));
  EXPECT_EQUAL(element_size(ElementType::f16), size_t{2});
  EXPECT_EQUAL(element_size(ElementType::u64), size_t{8});
  EXPECT_EQUAL(element_size(ElementType::boolean), size_t{1});
}

TEST(a_kernel_has_its_types_alone) {
  int calls = 0;
  with_kernel<Floating>("uniform_dist", ElementType::f16, [&](auto) { ++calls; });
  EXPECT_EQUAL(calls, 1);
  EXPECT_THROWS(
      KernelMissing, "Failed to create function state object for: uniform_dist_int",
      with_kernel<Floating>("uniform_dist", ElementType::i32, [&](auto) { ++calls; }));
  EXPECT_EQUAL(calls, 1);
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
  EXPECT(launch_sizes(0, 4).empty());
  EXPECT(launch_sizes(3, 1, 2) == std::vector<std::int64_t>({1, 2}));  // the lower half is the smaller one
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

TEST(no_element_is_written_beyond_the_end) {
  for (int n = 1; n < 70; ++n) {
    std::vector<std::uint8_t> bytes(static_cast<size_t>(n) + 8, 0xAB);
    RandomState state;
    fill_random_int(state, bytes.data(), n, ElementType::u8, 0, 100);
    for (size_t i = 0; i < bytes.size(); ++i) EXPECT((bytes[i] < 100) == (i < static_cast<size_t>(n)));
  }
}

TEST(a_state_survives_its_bytes) {
  RandomState state;
  state.manual_seed(0x0102030405060708ULL);
  state.offset = 99;
  const auto bytes = state.serialize();
  EXPECT_EQUAL(bytes.size(), size_t{44});
  EXPECT_EQUAL(bytes[28], 0x08);  // the seed, lowest byte first
  EXPECT_EQUAL(bytes[36], 99);
  const RandomState again = RandomState::deserialize(bytes.data(), bytes.size());
  EXPECT_EQUAL(again.seed, state.seed);
  EXPECT_EQUAL(again.offset, state.offset);
  EXPECT(std::memcmp(again.words, state.words, sizeof(state.words)) == 0);
  EXPECT_THROWS(std::runtime_error, "RNG state is wrong size", RandomState::deserialize(bytes.data(), 43));
}

}  // namespace

int main(int count, char** names) { return check::run(count, names); }
