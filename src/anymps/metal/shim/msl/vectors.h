// Vectors of 2, 3 and 4 elements, packed ones, and what makes them: constructors from parts, swizzles, operators by element.
//
// `a.xyz` of the source is written `a.template take<0, 1, 2>()`, and `.template place<...>()` where it is assigned to: no
// vector needs a member for each of the 340 swizzles. They live in a namespace of their own: found in `metal` through a
// vector's type, functions of `metal` would be as good as those of the same name around a caller.
#pragma once

#include <msl/scalars.h>

namespace anymps_vectors {

template <class T, unsigned N> struct vec;

template <class T, unsigned N> struct storage;
template <class T> struct alignas(2 * sizeof(T)) storage<T, 2> {
  union {
    struct { T x, y; };
    struct { T r, g; };
    T v_[2];
  };
  storage() = default;
  constexpr storage(const T (&t)[2]) : x(t[0]), y(t[1]) {}
};
template <class T> struct alignas(4 * sizeof(T)) storage<T, 3> {
  union {
    struct { T x, y, z; };
    struct { T r, g, b; };
    T v_[3];
  };
  storage() = default;
  constexpr storage(const T (&t)[3]) : x(t[0]), y(t[1]), z(t[2]) {}
};
template <class T> struct alignas(4 * sizeof(T)) storage<T, 4> {
  union {
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    T v_[4];
  };
  storage() = default;
  constexpr storage(const T (&t)[4]) : x(t[0]), y(t[1]), z(t[2]), w(t[3]) {}
};

template <class T> struct parts { static constexpr unsigned count = anymps_msl::is_number<T>::value ? 1 : 0; };
template <class T, unsigned N> struct parts<vec<T, N>> { static constexpr unsigned count = N; };
template <class T, unsigned N> struct packed;
template <class T, unsigned N> struct parts<packed<T, N>> { static constexpr unsigned count = N; };
template <class T> struct bare { using type = T; };
template <class T> struct bare<const T> { using type = T; };
template <class T> struct bare<T&> { using type = typename bare<T>::type; };

template <class T, class V, unsigned... I> struct placed;  // what a swizzle that is assigned to refers to

template <unsigned I, class V> constexpr auto element(const V& v) {
  if constexpr (I == 0) {
    return v.x;
  } else if constexpr (I == 1) {
    return v.y;
  } else if constexpr (I == 2) {
    return v.z;
  } else {
    return v.w;
  }
}

template <class T, unsigned N> struct vec : storage<T, N> {
  using element_type = T;
  vec() = default;
  constexpr vec(T value) : vec(value, indices<N>()) {}
  template <class S, class = typename anymps_msl::when<anymps_msl::is_number<S>::value>::type, class = void>
  constexpr vec(S value) : vec(static_cast<T>(value), indices<N>()) {}
  template <class U> explicit constexpr vec(const vec<U, N>& other) : storage<T, N>(converted(other).t) {}
  constexpr vec(const packed<T, N>& other) : storage<T, N>(other.v_) {}
  template <class U> explicit constexpr vec(const packed<U, N>& other) : vec(vec<U, N>(other)) {}
  template <
      class A, class B, class... C,
      class = typename anymps_msl::when<
          parts<typename bare<A>::type>::count + parts<typename bare<B>::type>::count + (0u + ... + parts<typename bare<C>::type>::count) == N>::type>
  constexpr vec(const A& a, const B& b, const C&... c) : storage<T, N>(gathered(a, b, c...).t) {}

  constexpr T& operator[](size_t i) { return this->v_[i]; }
  constexpr const T& operator[](size_t i) const { return this->v_[i]; }

  template <unsigned... I> constexpr vec<T, sizeof...(I)> take() const {
    return vec<T, sizeof...(I)>(element<I>(*this)...);
  }
  template <unsigned... I> placed<T, vec, I...> place() { return {*this}; }

  struct cells { T t[N]; };

 private:
  template <unsigned... I> struct index_list {};
  template <unsigned M, unsigned... I> struct make : make<M - 1, M - 1, I...> {};
  template <unsigned... I> struct make<0, I...> { using type = index_list<I...>; };
  template <unsigned M> using indices = typename make<M>::type;

  template <unsigned... I> constexpr vec(T value, index_list<I...>) : storage<T, N>({((void)I, value)...}) {}
  template <class U, unsigned... I> static constexpr cells pick(const vec<U, N>& other, index_list<I...>) {
    return {{static_cast<T>(element<I>(other))...}};
  }
  template <class U> static constexpr cells converted(const vec<U, N>& other) { return pick(other, indices<N>()); }

  template <class A> static constexpr void put(cells& into, unsigned& at, const A& part) {
    if constexpr (parts<A>::count == 1) {
      into.t[at++] = static_cast<T>(part);
    } else {
      into.t[at++] = static_cast<T>(element<0>(part));
      into.t[at++] = static_cast<T>(element<1>(part));
      if constexpr (parts<A>::count > 2) into.t[at++] = static_cast<T>(element<2>(part));
      if constexpr (parts<A>::count > 3) into.t[at++] = static_cast<T>(element<3>(part));
    }
  }
  template <class... A> static constexpr cells gathered(const A&... a) {
    cells into{};
    unsigned at = 0;
    (put(into, at, a), ...);
    return into;
  }

#define ANYMPS_BINARY(OP)                                                                                                   \
  friend constexpr ANYMPS_INLINE vec operator OP(const vec& a, const vec& b) {                                              \
    cells r{};                                                                                                              \
    for (unsigned i = 0; i < N; ++i) r.t[i] = static_cast<T>(a.at(i) OP b.at(i));                                           \
    return vec(r);                                                                                                          \
  }                                                                                                                         \
  friend constexpr ANYMPS_INLINE vec& operator OP##=(vec& a, const vec& b) { return a = a OP b; }
  ANYMPS_BINARY(+)
  ANYMPS_BINARY(-)
  ANYMPS_BINARY(*)
  ANYMPS_BINARY(/)
#undef ANYMPS_BINARY
#define ANYMPS_BITS(OP)                                                                                                     \
  friend constexpr ANYMPS_INLINE vec operator OP(const vec& a, const vec& b) {                                              \
    cells r{};                                                                                                              \
    if constexpr (anymps_msl::is_number<T>::value)                                                                          \
      for (unsigned i = 0; i < N; ++i) r.t[i] = static_cast<T>(whole(a.at(i)) OP whole(b.at(i)));                           \
    return vec(r);                                                                                                          \
  }                                                                                                                         \
  friend constexpr ANYMPS_INLINE vec& operator OP##=(vec& a, const vec& b) { return a = a OP b; }
  ANYMPS_BITS(%)
  ANYMPS_BITS(&)
  ANYMPS_BITS(|)
  ANYMPS_BITS(^)
  ANYMPS_BITS(<<)
  ANYMPS_BITS(>>)
#undef ANYMPS_BITS
#define ANYMPS_COMPARE(OP)                                                                                                  \
  friend constexpr ANYMPS_INLINE vec<bool, N> operator OP(const vec& a, const vec& b) {                                     \
    typename vec<bool, N>::cells r{};                                                                                       \
    for (unsigned i = 0; i < N; ++i) r.t[i] = a.at(i) OP b.at(i);                                                           \
    return vec<bool, N>(r);                                                                                                 \
  }
  ANYMPS_COMPARE(<)
  ANYMPS_COMPARE(>)
  ANYMPS_COMPARE(<=)
  ANYMPS_COMPARE(>=)
  ANYMPS_COMPARE(==)
  ANYMPS_COMPARE(!=)
  ANYMPS_COMPARE(&&)
  ANYMPS_COMPARE(||)
#undef ANYMPS_COMPARE
  friend constexpr vec operator-(const vec& a) {
    cells r{};
    for (unsigned i = 0; i < N; ++i) r.t[i] = static_cast<T>(-a.at(i));
    return vec(r);
  }
  friend constexpr vec operator+(const vec& a) { return a; }
  friend constexpr vec operator~(const vec& a) {
    cells r{};
    for (unsigned i = 0; i < N; ++i) r.t[i] = static_cast<T>(~whole(a.at(i)));
    return vec(r);
  }
  friend constexpr vec<bool, N> operator!(const vec& a) {
    typename vec<bool, N>::cells r{};
    for (unsigned i = 0; i < N; ++i) r.t[i] = !a.at(i);
    return vec<bool, N>(r);
  }
  friend constexpr vec& operator++(vec& a) { return a = a + vec(T(1)); }
  friend constexpr vec& operator--(vec& a) { return a = a - vec(T(1)); }
  friend constexpr vec operator++(vec& a, int) { const vec old = a; a = a + vec(T(1)); return old; }
  friend constexpr vec operator--(vec& a, int) { const vec old = a; a = a - vec(T(1)); return old; }

  template <class S> static constexpr auto whole(S value) {
    if constexpr (S(1) / S(2) == S(0)) {
      return value;
    } else {
      return static_cast<long>(value);  // never used: floats have no such operator
    }
  }

 public:
  constexpr T at(unsigned i) const {
    if constexpr (N == 2) {
      return i == 0 ? this->x : this->y;
    } else if constexpr (N == 3) {
      return i == 0 ? this->x : i == 1 ? this->y : this->z;
    } else {
      return i == 0 ? this->x : i == 1 ? this->y : i == 2 ? this->z : this->w;
    }
  }
  explicit constexpr vec(const cells& from) : storage<T, N>(from.t) {}
};

template <class T, class V, unsigned... I> struct placed {
  V& of;
  using value = vec<T, sizeof...(I)>;
  operator value() const { return of.template take<I...>(); }
  placed& operator=(const value& from) {
    unsigned at = 0;
    ((of.v_[I] = from.at(at++)), ...);
    return *this;
  }
  placed& operator+=(const value& b) { return *this = value(*this) + b; }
  placed& operator-=(const value& b) { return *this = value(*this) - b; }
  placed& operator*=(const value& b) { return *this = value(*this) * b; }
  placed& operator/=(const value& b) { return *this = value(*this) / b; }
  placed& operator&=(const value& b) { return *this = value(*this) & b; }
  placed& operator|=(const value& b) { return *this = value(*this) | b; }
  placed& operator^=(const value& b) { return *this = value(*this) ^ b; }
  placed& operator%=(const value& b) { return *this = value(*this) % b; }
  placed& operator<<=(const value& b) { return *this = value(*this) << b; }
  placed& operator>>=(const value& b) { return *this = value(*this) >> b; }
};

// Aligned as its elements are.
template <class T, unsigned N> struct packed_storage;
template <class T> struct packed_storage<T, 2> { union { struct { T x, y; }; struct { T r, g; }; T v_[2]; }; };
template <class T> struct packed_storage<T, 3> { union { struct { T x, y, z; }; struct { T r, g, b; }; T v_[3]; }; };
template <class T> struct packed_storage<T, 4> { union { struct { T x, y, z, w; }; struct { T r, g, b, a; }; T v_[4]; }; };
template <class T, unsigned N> struct packed : packed_storage<T, N> {
  packed() = default;
  packed(const vec<T, N>& from) { *this = from; }
  template <
      class... S,
      class = typename anymps_msl::when<sizeof...(S) == N && (true && ... && anymps_msl::is_number<S>::value)>::type>
  packed(S... values) { *this = vec<T, N>(values...); }
  template <class A, class = decltype(vec<T, N>(A())), class = void>
  explicit packed(const A& a) { *this = vec<T, N>(a); }
  template <class A, class B, class... C, class = decltype(vec<T, N>(A(), B(), C()...)), class = void>
  packed(const A& a, const B& b, const C&... c) { *this = vec<T, N>(a, b, c...); }
  packed(T value) { *this = vec<T, N>(value); }
  packed& operator=(const vec<T, N>& from) {
    for (unsigned i = 0; i < N; ++i) this->v_[i] = from.at(i);
    return *this;
  }
  T& operator[](size_t i) { return this->v_[i]; }
  const T& operator[](size_t i) const { return this->v_[i]; }
  template <unsigned... I> vec<T, sizeof...(I)> take() const { return vec<T, sizeof...(I)>(this->v_[I]...); }
  template <unsigned... I> placed<T, packed, I...> place() { return {*this}; }
#define ANYMPS_PACKED(OP)                                                                                                   \
  friend vec<T, N> operator OP(const packed& a, const packed& b) { return vec<T, N>(a) OP vec<T, N>(b); }                   \
  friend vec<T, N> operator OP(const packed& a, const vec<T, N>& b) { return vec<T, N>(a) OP b; }                           \
  friend vec<T, N> operator OP(const vec<T, N>& a, const packed& b) { return a OP vec<T, N>(b); }                           \
  friend vec<T, N> operator OP(const packed& a, T b) { return vec<T, N>(a) OP b; }                                          \
  friend vec<T, N> operator OP(T a, const packed& b) { return a OP vec<T, N>(b); }                                          \
  friend packed& operator OP##=(packed& a, const vec<T, N>& b) { return a = vec<T, N>(a) OP b; }
  ANYMPS_PACKED(+)
  ANYMPS_PACKED(-)
  ANYMPS_PACKED(*)
  ANYMPS_PACKED(/)
#undef ANYMPS_PACKED
  friend vec<T, N> operator-(const packed& a) { return -vec<T, N>(a); }
};

// `V v = {a, b};`: numbers fill it from the front, and zeros follow.
template <class V, class... S> ANYMPS_INLINE V listed(S... values) {
  if constexpr ((true && ... && anymps_msl::is_number<S>::value)) {
    V made(0);
    unsigned i = 0;
    (..., void(made[i++] = values));
    return made;
  } else {
    return V{values...};
  }
}

}  // namespace anymps_vectors

#define ANYMPS_VECTORS(NAME, T)                       \
  using NAME##2 = anymps_vectors::vec<T, 2>;          \
  using NAME##3 = anymps_vectors::vec<T, 3>;          \
  using NAME##4 = anymps_vectors::vec<T, 4>;          \
  using packed_##NAME##2 = anymps_vectors::packed<T, 2>; \
  using packed_##NAME##3 = anymps_vectors::packed<T, 3>; \
  using packed_##NAME##4 = anymps_vectors::packed<T, 4>;
ANYMPS_VECTORS(bool, bool)
ANYMPS_VECTORS(char, char)
ANYMPS_VECTORS(uchar, uchar)
ANYMPS_VECTORS(short, short)
ANYMPS_VECTORS(ushort, ushort)
ANYMPS_VECTORS(int, int)
ANYMPS_VECTORS(uint, uint)
ANYMPS_VECTORS(long, long)
ANYMPS_VECTORS(ulong, ulong)
ANYMPS_VECTORS(half, half)
ANYMPS_VECTORS(bfloat, bfloat)
ANYMPS_VECTORS(float, float)
#undef ANYMPS_VECTORS

#define ANYMPS_SAME_BUILT_IN(NAME) \
  using ::NAME##2;        \
  using ::NAME##3;        \
  using ::NAME##4;        \
  using ::packed_##NAME##2; \
  using ::packed_##NAME##3; \
  using ::packed_##NAME##4;
#define ANYMPS_SAME(NAME) using ::NAME; ANYMPS_SAME_BUILT_IN(NAME)
namespace metal {
using anymps_vectors::vec;
template <class T, unsigned N> using packed_vec = anymps_vectors::packed<T, N>;
ANYMPS_SAME(uchar) ANYMPS_SAME(ushort) ANYMPS_SAME(uint) ANYMPS_SAME(ulong) ANYMPS_SAME(half) ANYMPS_SAME(bfloat)
ANYMPS_SAME_BUILT_IN(bool) ANYMPS_SAME_BUILT_IN(char) ANYMPS_SAME_BUILT_IN(short) ANYMPS_SAME_BUILT_IN(int)
ANYMPS_SAME_BUILT_IN(long) ANYMPS_SAME_BUILT_IN(float)
using ::int8_t; using ::uint8_t; using ::int16_t; using ::uint16_t; using ::int32_t; using ::uint32_t;
using ::int64_t; using ::uint64_t; using ::size_t; using ::ptrdiff_t;
}  // namespace metal
#undef ANYMPS_SAME
#undef ANYMPS_SAME_BUILT_IN
