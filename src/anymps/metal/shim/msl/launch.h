// From a dispatch to calls of a kernel: buffers to parameters, positions to attributes, by the kernel's own types.
#pragma once

#include <msl/sync.h>

#if defined(ANYMPS_CHECKED)
// All that a kernel calls is inlined, as Metal's compiler does: -fsanitize=thread of g++ does not see what a call stores where
// its result goes at once (`x[i] = f(y[i])`, `f` returning a struct or a vector), nor what it reads to pass it by value.
#define ANYMPS_KERNEL static __attribute__((noinline, flatten))
#else
#define ANYMPS_KERNEL static inline __attribute__((always_inline))
#endif
#if defined(__clang__)
#define ANYMPS_ANY_ORDER _Pragma("clang loop vectorize(assume_safety)")
#define ANYMPS_UNROLLED _Pragma("clang loop unroll(full)")
#else
#define ANYMPS_ANY_ORDER _Pragma("GCC ivdep")
#define ANYMPS_UNROLLED _Pragma("GCC unroll 8")
#endif

namespace anymps_launch {

using namespace anymps_rt;

template <class F> struct params;
template <class... A> struct list {};
template <unsigned I, class A, class... B> struct pick { using type = typename pick<I - 1, B...>::type; };
template <class A, class... B> struct pick<0, A, B...> { using type = A; };
template <class R, class... A> struct params<R (*)(A...)> {
  static constexpr unsigned count = sizeof...(A);
  template <unsigned I> using at = typename pick<I, A...>::type;
};

// What a buffer is to a parameter. Small constants are copied: the compiler then knows that no store changes them.
template <class P> struct buffer;
template <class T> struct buffer<T*> {
  using held = T*;
  static ANYMPS_INLINE held bind(void* address) { return static_cast<T*>(address); }
};
template <class T> struct buffer<T&> {
  using held = T&;
  static ANYMPS_INLINE held bind(void* address) { return *static_cast<T*>(address); }
};
template <class T, bool Copied> struct constant_buffer {
  using held = const T;
  static ANYMPS_INLINE held bind(void* address) { return *static_cast<const T*>(address); }
};
template <class T> struct constant_buffer<T, false> {
  using held = const T&;
  static ANYMPS_INLINE held bind(void* address) { return *static_cast<const T*>(address); }
};
#if defined(ANYMPS_CHECKED)
template <class T> inline constexpr unsigned given = sizeof(T);  // bytes that a call has to give; not those of a gap
template <class T> inline constexpr unsigned given<anymps_vectors::vec<T, 3>> = 3 * sizeof(T);
template <class T, bool Copied> struct checked_constant : constant_buffer<T, Copied> {
  static ANYMPS_INLINE typename constant_buffer<T, Copied>::held bind(void* address) {
    anymps_check_constant(address, given<T>);
    return constant_buffer<T, Copied>::bind(address);
  }
};
#else
template <class T, bool Copied> using checked_constant = constant_buffer<T, Copied>;
#endif
template <class T> struct buffer<const T&> : checked_constant<T, (sizeof(T) <= 64)> {};
// The same for `const device T&`: what ends in an array may be longer than its type, and others may write there.
template <class P> struct device_buffer : buffer<P> {};
template <class T> struct device_buffer<const T&> : checked_constant<T, false> {};
template <class T, size_t N> struct buffer<const T (&)[N]> {
  using held = const T (&)[N];
  static ANYMPS_INLINE held bind(void* address) { return *static_cast<const T(*)[N]>(address); }
};
#if defined(ANYMPS_CHECKED)
// What a parameter takes: the numbers it is made of, by their letter in Python's `struct` (and E: bfloat; 0: no such number),
// how many of them an element has, and whether it is one element or as many as there are.
struct Parameter {
  unsigned kernel, buffer;
  char letter;
  unsigned char count, many, atomic;
};
template <class T> inline constexpr char letter = 0;
#define ANYMPS_LETTER(T, LETTER) template <> inline constexpr char letter<T> = LETTER;
ANYMPS_LETTER(bool, '?')
ANYMPS_LETTER(char, 'b')
ANYMPS_LETTER(signed char, 'b')
ANYMPS_LETTER(uchar, 'B')
ANYMPS_LETTER(short, 'h')
ANYMPS_LETTER(ushort, 'H')
ANYMPS_LETTER(int, 'i')
ANYMPS_LETTER(uint, 'I')
ANYMPS_LETTER(long, 'q')
ANYMPS_LETTER(ulong, 'Q')
ANYMPS_LETTER(half, 'e')
ANYMPS_LETTER(bfloat, 'E')
ANYMPS_LETTER(float, 'f')
#undef ANYMPS_LETTER
template <class T> struct made_of {
  static constexpr char of = letter<T>;
  static constexpr unsigned char count = 1, atomic = 0;
};
template <class T, unsigned N> struct made_of<anymps_vectors::vec<T, N>> : made_of<T> { static constexpr unsigned char count = N; };
template <class T, unsigned N> struct made_of<anymps_vectors::packed<T, N>> : made_of<T> { static constexpr unsigned char count = N; };
template <class T> struct made_of<metal::atomic<T>> : made_of<T> { static constexpr unsigned char atomic = 1; };
template <class P> struct parameter;
template <class T, unsigned char Many> struct parameter_of {
  static constexpr Parameter at(unsigned kernel, unsigned buffer) {
    using Made = made_of<metal::remove_cv_t<T>>;
    return {kernel, buffer, Made::of, Made::count, Many, Made::atomic};
  }
};
template <class T> struct parameter<T*> : parameter_of<T, 1> {};
template <class T> struct parameter<T&> : parameter_of<T, 0> {};
template <class T, size_t N> struct parameter<T (&)[N]> : parameter<T*> {};
#endif

// Whether a kernel may write what it is given for a parameter.
template <class P> inline constexpr bool writes = false;
template <class T> inline constexpr bool writes<T*> = true;
template <class T> inline constexpr bool writes<const T*> = false;
template <class T> inline constexpr bool writes<T&> = true;
template <class T> inline constexpr bool writes<const T&> = false;

struct Triple {
  unsigned v[3];
};
// A position from numbers: through an array g++ makes no vector code.
template <class T> struct grid_position {
  static ANYMPS_INLINE T from(unsigned x, unsigned, unsigned) { return static_cast<T>(x); }
};
template <class T> struct grid_position<const T> : grid_position<T> {};
template <class T> struct grid_position<anymps_vectors::vec<T, 2>> {
  static ANYMPS_INLINE anymps_vectors::vec<T, 2> from(unsigned x, unsigned y, unsigned) { return {static_cast<T>(x), static_cast<T>(y)}; }
};
template <class T> struct grid_position<anymps_vectors::vec<T, 3>> {
  static ANYMPS_INLINE anymps_vectors::vec<T, 3> from(unsigned x, unsigned y, unsigned z) {
    return {static_cast<T>(x), static_cast<T>(y), static_cast<T>(z)};
  }
};

template <class T> struct attribute {
  static ANYMPS_INLINE auto from(const Triple& t) { return grid_position<T>::from(t.v[0], t.v[1], t.v[2]); }
};

// The attributes of one thread, by its place in the grid (plain kernels) or in its group (the others).
struct Point {
  const Launch& l;
  unsigned p[3];
  ANYMPS_INLINE Triple position() const { return {{p[0], p[1], p[2]}}; }
  ANYMPS_INLINE Triple local() const { return {{p[0] % l.group[0], p[1] % l.group[1], p[2] % l.group[2]}}; }
  ANYMPS_INLINE Triple group() const { return {{p[0] / l.group[0], p[1] / l.group[1], p[2] / l.group[2]}}; }
  ANYMPS_INLINE Triple size() const {
    const Triple g = group();
    Triple r;
    for (unsigned i = 0; i < 3; ++i) {
      const unsigned left = l.grid[i] - g.v[i] * l.group[i];
      r.v[i] = left < l.group[i] ? left : l.group[i];
    }
    return r;
  }
  ANYMPS_INLINE unsigned index() const {
    const Triple t = local(), s = size();
    return t.v[0] + s.v[0] * (t.v[1] + s.v[1] * t.v[2]);
  }
};
struct Member {
  const Launch& l;
  const Group& g;
  Triple t;
  unsigned i;
  ANYMPS_INLINE Triple position() const {
    return {{g.position[0] * l.group[0] + t.v[0], g.position[1] * l.group[1] + t.v[1], g.position[2] * l.group[2] + t.v[2]}};
  }
  ANYMPS_INLINE Triple local() const { return t; }
  ANYMPS_INLINE Triple group() const { return {{g.position[0], g.position[1], g.position[2]}}; }
  ANYMPS_INLINE Triple size() const { return {{g.size[0], g.size[1], g.size[2]}}; }
  ANYMPS_INLINE unsigned index() const { return i; }
};
template <class C> ANYMPS_INLINE unsigned threads(const C& c) { const Triple s = c.size(); return s.v[0] * s.v[1] * s.v[2]; }
#define ANYMPS_ATTRIBUTE(NAME, ...) \
  template <class C> ANYMPS_INLINE Triple NAME(const C& c) { return Triple{__VA_ARGS__}; }
ANYMPS_ATTRIBUTE(thread_position_in_grid, c.position())
ANYMPS_ATTRIBUTE(thread_position_in_threadgroup, c.local())
ANYMPS_ATTRIBUTE(threadgroup_position_in_grid, c.group())
ANYMPS_ATTRIBUTE(threads_per_threadgroup, c.size())
ANYMPS_ATTRIBUTE(dispatch_threads_per_threadgroup, {c.l.group[0], c.l.group[1], c.l.group[2]})
ANYMPS_ATTRIBUTE(threads_per_grid, {c.l.grid[0], c.l.grid[1], c.l.grid[2]})
ANYMPS_ATTRIBUTE(threadgroups_per_grid, {c.l.groups[0], c.l.groups[1], c.l.groups[2]})
ANYMPS_ATTRIBUTE(thread_index_in_threadgroup, {c.index(), 0, 0})
ANYMPS_ATTRIBUTE(thread_index_in_simdgroup, {c.index() % 32, 0, 0})
ANYMPS_ATTRIBUTE(thread_index_in_quadgroup, {c.index() % 4, 0, 0})
ANYMPS_ATTRIBUTE(simdgroup_index_in_threadgroup, {c.index() / 32, 0, 0})
ANYMPS_ATTRIBUTE(quadgroup_index_in_threadgroup, {c.index() / 4, 0, 0})
ANYMPS_ATTRIBUTE(threads_per_simdgroup, {32, 1, 1})
ANYMPS_ATTRIBUTE(thread_execution_width, {32, 1, 1})
ANYMPS_ATTRIBUTE(simdgroups_per_threadgroup, {(threads(c) + 31) / 32, 1, 1})
ANYMPS_ATTRIBUTE(quadgroups_per_threadgroup, {(threads(c) + 3) / 4, 1, 1})
ANYMPS_ATTRIBUTE(dispatch_simdgroups_per_threadgroup, {(c.l.group[0] * c.l.group[1] * c.l.group[2] + 31) / 32, 1, 1})
ANYMPS_ATTRIBUTE(dispatch_quadgroups_per_threadgroup, {(c.l.group[0] * c.l.group[1] * c.l.group[2] + 3) / 4, 1, 1})
ANYMPS_ATTRIBUTE(grid_origin, {0, 0, 0})
ANYMPS_ATTRIBUTE(grid_size, {c.l.grid[0], c.l.grid[1], c.l.grid[2]})
#undef ANYMPS_ATTRIBUTE
#define ANYMPS_VALUE(P, NAME) anymps_launch::attribute<P>::from(anymps_launch::NAME(anymps_me))

// Threadgroup memory. Each declaration has its place, given when the library is loaded; so the sizes are known without a
// launch. `Owner` is the kernel, an instance of a template included.
struct Declared {
  Declared* next;
  const void* owner;
  unsigned bytes;
};
inline Declared* declared = nullptr;
template <class T, auto Owner> struct Shared {
  static unsigned offset;
  static Declared entry;
  static unsigned place() {
    unsigned before = 0;
    for (const Declared* d = declared; d != nullptr; d = d->next)
      if (d->owner == reinterpret_cast<const void*>(Owner)) before += d->bytes;
    entry.next = declared;
    entry.owner = reinterpret_cast<const void*>(Owner);
    entry.bytes = (unsigned(sizeof(T)) + 15u) & ~15u;
    declared = &entry;
    return before;
  }
  static ANYMPS_INLINE T& in(char* memory) { return *reinterpret_cast<T*>(memory + offset); }
  static ANYMPS_INLINE T& get() { return in(ANYMPS_SHARED()); }
};
template <class T, auto Owner> Declared Shared<T, Owner>::entry{};
// What an initializer of threadgroup memory does: each thread writes the value.
template <class T> struct PlainOf { using type = T; };
template <class T> struct PlainOf<T&> { using type = T; };
template <class T> using Plain = typename PlainOf<T>::type;
template <class T> ANYMPS_INLINE void set_shared(T& place, const T& value) { place = value; }
template <class T, unsigned long N> ANYMPS_INLINE void set_shared(T (&place)[N], const T (&value)[N]) {
  for (unsigned long i = 0; i < N; ++i) set_shared(place[i], value[i]);
}
template <class T, auto Owner> unsigned Shared<T, Owner>::offset = Shared<T, Owner>::place();
template <auto Owner> unsigned shared_bytes() {
  unsigned sum = 0;
  for (const Declared* d = declared; d != nullptr; d = d->next)
    if (d->owner == reinterpret_cast<const void*>(Owner)) sum += d->bytes;
  return sum;
}

}  // namespace anymps_launch
