// Loops of single threads that are done turn by turn, side by side for several threads.
#pragma once

#include <msl/traits.h>

namespace anymps_fission {

#if defined(__AVX512F__)
constexpr int abreast = 16;
#else
constexpr int abreast = 8;
#endif
template <int I> struct Number { static constexpr int value = I; };
// The loops `for (T i = start; i < bound; i += step)` of N threads: `least` turns for all of them, `most` for some.
// What counts with negative numbers, down, or past the end of T, is `refused`.
template <class T, int N> struct Turns {
  T first[N];
  long shortest = 0x7fffffffffffffffL, longest = 0, highest = 0;
  bool refused = false;
  unsigned least = 0, most = 0;
  template <class B> ANYMPS_INLINE void see(int thread, T start, B bound) {
    first[thread] = start;
    if constexpr (metal::is_integral_v<B>) {
      const long from = long(start), to = long(bound), span = to > from ? to - from : 0;
      refused = refused || from < 0 || to < 0;
      shortest = span < shortest ? span : shortest;
      longest = span > longest ? span : longest;
      highest = from > highest ? from : highest;
    } else {
      refused = true;
    }
  }
  template <class S> ANYMPS_INLINE bool count(S step) {
    constexpr long end = long(metal::numeric_limits<T>::max());
    if constexpr (metal::is_integral_v<S>) {
      const long by = long(step);
      if (refused || by <= 0 || by > end || longest > end) return false;
      const long some = by == 1 ? longest : (longest + by - 1) / by;
      if (highest + some * by > end) return false;
      most = unsigned(some);
      least = unsigned(shortest == longest ? some : (shortest + by - 1) / by);
      return true;
    } else {
      return false;
    }
  }
  template <class S> ANYMPS_INLINE T at(int thread, unsigned turn, S step) const { return T(first[thread] + T(turn) * T(step)); }
};
// Numbers that compilers make vectors of.
template <class... E>
inline constexpr bool in_vectors = ((metal::is_arithmetic_v<metal::remove_cvref_t<E>> && sizeof(E) <= 4) && ...);
// What N threads have of a variable, where compilers can hold it in registers.
template <class E, int N> struct Held {
  using Element = metal::remove_cvref_t<E>;
  using All = Element[N];
  Element all[N];
  explicit ANYMPS_INLINE Held(const Element* from) {
    for (int i = 0; i < N; ++i) all[i] = from[i];
  }
  ANYMPS_INLINE void put(Element* to) const {
    for (int i = 0; i < N; ++i) to[i] = all[i];
  }
};

// Whether N threads read elements that adjoin. `index` gives a thread's, and is called for the first of them alone if not `adjoining`.
template <int N, class F> ANYMPS_INLINE bool adjoin(const F& index, bool& adjoining) {
  if (!adjoining) return false;
  const auto first = index(0);
  using I = metal::remove_cvref_t<decltype(first)>;
  bool all = first <= I(metal::numeric_limits<I>::max() - N);
  for (int i = 1; i < N; ++i) all &= I(index(i) - first) == I(i);
  return adjoining = all;
}
template <int N, class E, class P, class F> ANYMPS_INLINE void fetch(E (&to)[N], const P& from, const F& index, bool& adjoining) {
  if (adjoin<N>(index, adjoining)) __builtin_memcpy(to, &from[index(0)], sizeof(to));
  else for (int i = 0; i < N; ++i) to[i] = from[index(i)];
}
template <int N, class E, class P, class F> ANYMPS_INLINE void store(const E (&from)[N], P& to, const F& index, bool& adjoining) {
  if (adjoin<N>(index, adjoining)) __builtin_memcpy(&to[index(0)], from, sizeof(from));
  else for (int i = 0; i < N; ++i) to[index(i)] = from[i];
}

}  // namespace anymps_fission
