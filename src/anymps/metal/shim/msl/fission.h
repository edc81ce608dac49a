// Groups that run as loops over their threads: arrays for what lives across a cut, and what threads do together.
//
// Each function is given the threads, who of them has not returned (or null: all of them), and a function that makes the call
// for one thread. Where there is no shorter way, all threads make that call as fibers; the results are the same to the bit.
#pragma once

#include <msl/launch.h>
#include <msl/welford.h>

namespace anymps_fission {

using namespace anymps_sync;

template <class T> struct plain { using type = T; };
template <class T> struct plain<const T> { using type = T; };

template <class... T> struct Columns {};
template <class H, class... R> struct Columns<H, R...> {
  alignas(64) H head[1024];
  Columns<R...> rest;
  template <unsigned I> auto& get() {
    if constexpr (I == 0) return head;
    else return rest.template get<I - 1>();
  }
};
template <class... T> struct Kept { using Stores = Columns<typename plain<T>::type...>; };
struct Probe { static constexpr bool probe = true; };
struct Nowhere { static constexpr bool probe = false; };
template <class S> struct Into {
  static constexpr bool probe = false;
  S& stores;
  template <unsigned I, class V> ANYMPS_INLINE void put(int i, const V& value) const { stores.template get<I>()[i] = value; }
};
template <class S> ANYMPS_INLINE Into<S> into(S& stores) { return {stores}; }

// Where the threads of a group lie in the grid: along one axis.
struct Line {
  int grid[3], group[3] = {0, 0, 0};
  int start;
  anymps_launch::Member member;
  Line(const anymps_rt::Group& g, int axis) : member{*g.launch, g, {{0, 0, 0}}, 0} {
    for (int i = 0; i < 3; ++i) {
      grid[i] = int(g.position[i] * g.launch->group[i]);
      if (grid[i] < 0) __builtin_unreachable();  // so that `grid[i] + thread` cannot wrap
    }
    start = grid[axis];
  }
};

// The threads that have something to do where all from `bound` on have nothing: as the comparison with an index takes it.
template <class T> ANYMPS_INLINE int at_most(int n, T bound) {
  if constexpr (metal::is_integral_v<T>) return bound < T(0) || (unsigned long)(bound) > (unsigned long)(n) ? n : int(bound);
  else return n;
}

// Calls `f` for each thread, as fibers.
template <class F> void by_fibers(int n, const unsigned char* alive, F& f) {
  struct Context { F& f; const unsigned char* alive; } context{f, alive};
  anymps_rt_group(unsigned(n), [](void* given, unsigned i) {
    Context& c = *static_cast<Context*>(given);
    if (c.alive == nullptr || c.alive[i] != 0) c.f(int(i));
  }, &context);
}
template <class F, class R> void each(int n, const unsigned char* alive, F& f, R* results) {
  auto one = [&](int i) { results[i] = f(i); };
  by_fibers(n, alive, one);
}
// A call that gives all threads the same result.
template <class F> auto same(int n, const unsigned char* alive, F& f) {
  typename plain<decltype(f(0))>::type result{};
  auto one = [&](int i) { result = f(i); };
  by_fibers(n, alive, one);
  return result;
}

// 32-bit values of many lanes in one register, and operations on them that give what `Op::apply` gives for each.
template <class W, unsigned N> struct Lanes {
  typedef W type __attribute__((vector_size(N * sizeof(W))));
};
template <class Op> struct on_lanes { static constexpr bool known = false; };
#define ANYMPS_ON_LANES(OPERATION, EXPRESSION)                                   \
  template <> struct on_lanes<OPERATION> {                                       \
    static constexpr bool known = true;                                          \
    template <class V> static ANYMPS_INLINE V apply(V a, V b) { return EXPRESSION; } \
  };
ANYMPS_ON_LANES(Sum, a + b)
ANYMPS_ON_LANES(Product, a * b)
ANYMPS_ON_LANES(Min, b != b ? a : a <= b ? a : b)
ANYMPS_ON_LANES(Max, b != b ? a : a >= b ? a : b)
// Of c10's min and max, where a NaN wins. Which NaN it was is not told.
struct SpreadMin { template <class T> static T apply(T a, T b) { return a != a || a <= b ? a : b; } };
struct SpreadMax { template <class T> static T apply(T a, T b) { return a != a || a >= b ? a : b; } };
ANYMPS_ON_LANES(SpreadMin, (a != a) | (a <= b) ? a : b)
ANYMPS_ON_LANES(SpreadMax, (a != a) | (a >= b) ? a : b)
// The same, as processors have it, where there is no NaN: in what order zeros of both signs come makes a difference.
struct PlainMin { template <class T> static T apply(T a, T b) { return a < b ? a : b; } };
struct PlainMax { template <class T> static T apply(T a, T b) { return a > b ? a : b; } };
ANYMPS_ON_LANES(PlainMin, a < b ? a : b)
ANYMPS_ON_LANES(PlainMax, a > b ? a : b)
template <class Op> struct spread;
template <> struct spread<Min> { using type = SpreadMin; using quick = PlainMin; };
template <> struct spread<Max> { using type = SpreadMax; using quick = PlainMax; };
#undef ANYMPS_ON_LANES
template <class Op, class T>
inline constexpr bool in_registers = on_lanes<Op>::known && metal::is_arithmetic_v<T> && sizeof(T) == 4;
// Lanes in a register: the halves of eight g++ parts through memory.
#if defined(__AVX512F__)
constexpr unsigned kWidth = 16;
#else
constexpr unsigned kWidth = 4;
#endif
// The upper half of the lanes onto the lower, until one is left.
template <class Op, unsigned N, class W> ANYMPS_INLINE W fold(typename Lanes<W, N>::type v) {
  typename Lanes<W, N / 2>::type low, high;
  __builtin_memcpy(&low, &v, sizeof(low));
  __builtin_memcpy(&high, reinterpret_cast<const char*>(&v) + sizeof(low), sizeof(high));
  low = on_lanes<Op>::apply(low, high);
  if constexpr (N == 2) return low[0];
  else return fold<Op, N / 2, W>(low);
}

// The tree of `anymps_sync::reduce` over the first `lanes` of 32.
template <class Op, class T> ANYMPS_INLINE T tree(const T* values, int lanes) {
  using W = typename wider<T>::type;
  if constexpr (in_registers<Op, T>) {
    if (lanes >= 32) {
      typename Lanes<T, kWidth>::type v[32 / kWidth];
      __builtin_memcpy(v, values, sizeof(v));
      for (unsigned left = 16 / kWidth; left > 0; left /= 2) {
        for (unsigned i = 0; i < left; ++i) v[i] = on_lanes<Op>::apply(v[i], v[i + left]);
      }
      return fold<Op, kWidth, T>(v[0]);
    }
  }
  W v[32];
  for (int i = 0; i < lanes; ++i) v[i] = W(values[i]);
  const int widest = lanes > 16 ? 16 : lanes > 8 ? 8 : lanes > 4 ? 4 : lanes > 2 ? 2 : lanes - 1;
  for (int half_width = widest; half_width > 0; half_width /= 2) {
    for (int i = 0; i < half_width && i + half_width < lanes; ++i) v[i] = Op::apply(v[i], v[i + half_width]);
    lanes = lanes < half_width ? lanes : half_width;
  }
  return T(v[0]);
}
// The trees of SIMD groups of `n` threads; the last group may have fewer lanes.
template <class Op, class T> ANYMPS_INLINE void all_trees(const T* values, int n, T* results) {
  const unsigned whole = unsigned(n) / 32;
  for (unsigned s = 0; s < whole; ++s) results[s] = tree<Op>(values + 32 * s, 32);
  if (n % 32 != 0) results[whole] = tree<Op>(values + 32 * whole, n % 32);
}

template <class Op, class F, class T> void simd(int n, const unsigned char* alive, F& f, T* results, const T* values) {
  if (alive != nullptr) return each(n, alive, f, results);
  T found[32];
  all_trees<Op>(values, n, found);
  for (int s = 0; s < n; s += 32) {
    const int lanes = n - s < 32 ? n - s : 32;
    for (int i = 0; i < lanes; ++i) results[s + i] = found[s / 32];
  }
}
#define ANYMPS_ON_LANES(NAME, OPERATION) \
  template <class F, class T> void NAME(int n, const unsigned char* alive, F& f, T* results, const T* values) { \
    simd<OPERATION>(n, alive, f, results, values); \
  }
ANYMPS_ON_LANES(simd_sum, Sum)
ANYMPS_ON_LANES(simd_product, Product)
ANYMPS_ON_LANES(simd_min, Min)
ANYMPS_ON_LANES(simd_max, Max)
#undef ANYMPS_ON_LANES

// The collectives of c10/metal/reduction_utils.h: a tree in each SIMD group, whose results go to threadgroup memory, and a
// tree over those. With 64-bit integers theirs go another way.
template <class T> inline constexpr bool narrow = metal::is_arithmetic_v<T> && sizeof(T) <= 4;
template <class T> ANYMPS_INLINE bool is_nan(T value) { return value != value; }

template <class Op, bool Spread, class R> ANYMPS_INLINE R c10_tree(const R* values, int lanes) {
  if constexpr (Spread && metal::is_floating_point_v<R>) {  // min and max: a NaN wins
    const R value = tree<typename spread<Op>::type>(values, lanes);
    return is_nan(value) ? metal::numeric_limits<R>::quiet_NaN() : value;
  } else {
    return tree<Op>(values, lanes);
  }
}
// Of all SIMD groups of `n` threads. Whether the quick way was enough: no NaN, and no zero among the results.
template <class Op, bool Spread, class R> ANYMPS_INLINE bool c10_trees(const R* values, int n, R* results) {
  if constexpr (!Spread || !metal::is_floating_point_v<R>) {
    all_trees<Op>(values, n, results);
  } else {
    const int whole = n / 32;
    int nan = 0;
    for (int i = 0; i < n; ++i) nan |= int(is_nan(values[i]));
    if (nan == 0) {
      all_trees<typename spread<Op>::quick>(values, n, results);
      bool zero = false;
      for (int s = 0; s < (n + 31) / 32; ++s) zero |= results[s] == 0;
      if (!zero) return true;
    }
    for (int s = 0; s < whole; ++s) results[s] = c10_tree<Op, Spread>(values + 32 * s, 32);
    if (n % 32 != 0) results[whole] = c10_tree<Op, Spread>(values + 32 * whole, n % 32);
  }
  return false;
}
template <class Op, bool Spread, class F, class R, class T>
ANYMPS_INLINE R reduced(int n, const unsigned char* alive, F& f, R* data, const T* values, bool straight, unsigned size) {
  if constexpr (narrow<R> && metal::is_arithmetic_v<T>) {
    if (alive == nullptr && straight && size == unsigned(n)) {
      R found[32];
      const int groups = (n + 31) / 32;
      bool quick;
      if constexpr (metal::is_same_v<R, T>) {
        quick = c10_trees<Op, Spread>(values, n, found);
      } else {
        alignas(64) R wide[1024];
        for (int i = 0; i < n; ++i) wide[i] = static_cast<R>(values[i]);
        quick = c10_trees<Op, Spread>(wide, n, found);
      }
      for (int s = 1; s < groups; ++s) data[s] = found[s];
      if constexpr (Spread && metal::is_floating_point_v<R>) {
        if (n > 32) found[0] = quick ? tree<typename spread<Op>::quick>(found, groups) : c10_tree<Op, Spread>(found, groups);
      } else {
        if (n > 32) found[0] = tree<Op>(found, groups);
      }
      return data[0] = found[0];
    }
  }
  return same(n, alive, f);
}
#define ANYMPS_REDUCED(NAME, OPERATION, SPREAD) \
  template <class F, class R, class T, class N> ANYMPS_INLINE R NAME(int n, const unsigned char* alive, F& f, R* data, const T* values, bool straight, N size) { \
    return reduced<OPERATION, SPREAD>(n, alive, f, data, values, straight, unsigned(size)); \
  }
ANYMPS_REDUCED(threadgroup_sum, Sum, false)
ANYMPS_REDUCED(threadgroup_prod, Product, false)
ANYMPS_REDUCED(threadgroup_max, Max, true)
ANYMPS_REDUCED(threadgroup_min, Min, true)
#undef ANYMPS_REDUCED

// The first lane whose value is the winner or NaN.
template <class Op, class R> ANYMPS_INLINE int winner(const R* values, int lanes, R& value) {
  value = c10_tree<Op, true>(values, lanes);
  for (int i = 0; i < lanes; ++i) {
    if (values[i] == value || is_nan(values[i])) return i;
  }
  return 0;
}
template <class Op, class F, class R, class I, class T, class J>
I placed(int n, const unsigned char* alive, F& f, R* data, I* places, const T* values, const J* at, bool straight, unsigned size) {
  if constexpr (narrow<R>) {
    if (alive == nullptr && straight && size == unsigned(n)) {
      R wide[32], value;
      for (int s = 0; s < n; s += 32) {
        const int lanes = n - s < 32 ? n - s : 32;
        for (int i = 0; i < lanes; ++i) wide[i] = values[s + i];
        const I place = at[s + winner<Op>(wide, lanes, value)];
        if (n <= 32) return place;
        data[s / 32] = value;
        places[s / 32] = place;
      }
      return places[0] = places[winner<Op>(data, (n + 31) / 32, value)];
    }
  }
  return same(n, alive, f);
}
#define ANYMPS_PLACED(NAME, OPERATION) \
  template <class F, class R, class I, class T, class J, class N> \
  I NAME(int n, const unsigned char* alive, F& f, R* data, I* places, const T* values, const J* at, bool straight, N size) { \
    return placed<OPERATION>(n, alive, f, data, places, values, at, straight, unsigned(size)); \
  }
ANYMPS_PLACED(threadgroup_argmax, Max)
ANYMPS_PLACED(threadgroup_argmin, Min)
#undef ANYMPS_PLACED

// Read threadgroup memory alone: one thread does what each of them would.
template <class F> auto first(F& f) {
  typename plain<decltype(f(0))>::type result{};
  auto one = [&](int i) { result = f(i); };
  by_fibers(1, nullptr, one);
  return result;
}

// Groups that run side by side meet at these, and each is a lane.
template <class W, class F, class T> metal::float3 welford(F& f, T* data, unsigned size) {
  if constexpr (metal::is_same_v<T, typename W::Element>) {
    anymps_welford::Row<W> mine{data, size, {}};
    anymps_rt_simd(&mine, anymps_welford::by_rows<W>, 0);
    return mine.result;
  } else {
    return first(f);
  }
}
template <class F, class T, class N> auto threadgroup_welford_reduce(int, const unsigned char*, F& f, T* data, N size) {
  return welford<anymps_welford::Elements>(f, data, unsigned(size));
}
template <class F, class T, class N> auto threadgroup_welford_combine(int, const unsigned char*, F& f, T* data, N size) {
  return welford<anymps_welford::Parts>(f, data, unsigned(size));
}

}  // namespace anymps_fission
