// A group of threads as loops over lanes: which lanes run together, and what opens when they wait.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include <msl/float_state.h>

#include "fibers.h"

namespace anymps_rt {
namespace {

// Which of the 32 lanes are at that place, a bit each.
unsigned lanes_at(const unsigned char* places, unsigned char place) {
  constexpr uint64_t kOnes = 0x0101010101010101, kLow = 0x7f7f7f7f7f7f7f7f;
  unsigned found = 0;
  for (unsigned word = 0; word < kLanes / 8; ++word) {
    uint64_t apart;
    std::memcpy(&apart, places + 8 * word, sizeof(apart));
    apart ^= kOnes * place;
    const uint64_t equal = ~(((apart & kLow) + kLow) | apart | kLow) >> 7;  // 1 in each byte that is
    found |= static_cast<unsigned>((equal * 0x0102040810204080) >> 56) << 8 * word;
  }
  return found;
}

}  // namespace

// Runs the lanes of a SIMD group until all of them wait or are done: those side by side that are at one place by one call.
void Fibers::run_ready(unsigned s, const Group& group, const Lanes& lanes) {
  const unsigned char* const places = places_ + s * kLanes;
  while (runnable_[s] != 0) {
    const auto first = static_cast<unsigned>(__builtin_ctz(runnable_[s]));
    const unsigned place = places[first];
    const uint64_t others = ~static_cast<uint64_t>(runnable_[s] & lanes_at(places, places[first])) >> first << first;
    const auto end = static_cast<unsigned>(__builtin_ctzll(others));
    auto left = static_cast<unsigned>((1ull << end) - (1ull << first));
    current = s * kLanes + first;
    runnable_[s] &= ~left;
    span_ = {place, current, s * kLanes + end};
    lanes.run(*group.launch, group, threads_.data(), frames_, places_, place, span_.from, span_.to);
    while (left != 0) {
      const unsigned char now = places[__builtin_ctz(left)];
      const unsigned there = left & lanes_at(places, now);
      left &= ~there;
      if (now != kDone) {
        (lanes.waits[now].resolve == nullptr ? at_barrier_ : at_simd_)[s] |= there;
      }
    }
  }
}

// Does the SIMD call with the lowest place, and lets its lanes go on.
void Fibers::resolve_lanes(unsigned s, const Lanes& lanes) {
  const unsigned char* const places = places_ + s * kLanes;
  const Lanes::At* lowest = nullptr;
  for (unsigned rest = at_simd_[s]; rest != 0;) {
    const unsigned char place = places[__builtin_ctz(rest)];
    rest &= ~lanes_at(places, place);
    const Lanes::At& wait = lanes.waits[place];
    lowest = lowest == nullptr || wait.site < lowest->site ? &wait : lowest;
  }
  unsigned found = 0;
  for (unsigned rest = at_simd_[s]; rest != 0;) {
    const unsigned char place = places[__builtin_ctz(rest)];
    const unsigned there = rest & lanes_at(places, place);
    rest &= ~there;
    const Lanes::At& wait = lanes.waits[place];
    if (wait.site != lowest->site || wait.resolve != lowest->resolve) {
      continue;
    }
    found |= there;
    char* slot = frames_ + wait.offset + s * kLanes * wait.stride;
    for (unsigned lane = 0; lane < kLanes; ++lane, slot += wait.stride) {
      slots_[s * kLanes + lane] = (there >> lane & 1) != 0 ? slot : slots_[s * kLanes + lane];
    }
  }
  lowest->resolve(slots_ + s * kLanes, found);
  at_simd_[s] &= ~found;
  runnable_[s] = found;
}

// The threads of a group, each with its place in it; as they were left by a group of the same size.
void Fibers::place_threads(const Group& group) {
  threads_.resize(kMaxThreads);
  if (std::equal(group.size, group.size + 3, placed_)) {
    return;
  }
  std::copy_n(group.size, 3, placed_);
  Thread thread{nullptr, nullptr, {0, 0, 0}, 0};
  for (; thread.index < group.threads; ++thread.index) {
    threads_[thread.index] = thread;
    if (++thread.local[0] == group.size[0]) {
      thread.local[0] = 0;
      if (++thread.local[1] == group.size[1]) {
        thread.local[1] = 0;
        ++thread.local[2];
      }
    }
  }
}

void Fibers::run_lane_again(const Group& group, const Lanes& lanes, unsigned lane) {
  lanes.run(*group.launch, group, threads_.data(), frames_, places_, span_.at, lane, lane + 1);
}

void Fibers::run_lanes(const Group& group, const Lanes& lanes) {
  const unsigned long state = flush_subnormals();
  reserve_frames(lanes.frame_bytes);
  place_threads(group);
  begin_group(group.threads);
  std::fill_n(places_, group.threads, static_cast<unsigned char>(0));
  Fibers* const before = enter();
  do {
    for (; ready_ != 0; ready_ &= ready_ - 1) {
      const auto s = static_cast<unsigned>(__builtin_ctz(ready_));
      for (run_ready(s, group, lanes); at_simd_[s] != 0; run_ready(s, group, lanes)) {
        resolve_lanes(s, lanes);
      }
    }
  } while (open_barrier());
  leave(before);
  set_float_state(state);
}

}  // namespace anymps_rt
