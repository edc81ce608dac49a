// A generator's state, and how huge tensors are split. Rules, sources and exactness: philox.h.
#include "model/philox.h"

#include <algorithm>

namespace anymps {

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

}  // namespace anymps
