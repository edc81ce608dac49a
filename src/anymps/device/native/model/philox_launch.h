// Launches over n elements: the stream cut in blocks and pieces as the Metal host code does. Inside of the model only.
#pragma once

#include "model/philox_elements.h"
#include "model/philox_engine.h"

namespace anymps::philox {

inline void run(const Launch& launch, std::int64_t count, const ParallelBody& body) {
  if (launch.parallel_for && count > 1) {
    launch.parallel_for(count, body);
  } else {
    body(0, count);
  }
}

inline std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return a / b + (a % b != 0); }

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

}  // namespace anymps::philox
