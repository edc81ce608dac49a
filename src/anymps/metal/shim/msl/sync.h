// What threads of a group do together: barriers, SIMD groups, quads, and 8x8 matrices that a SIMD group holds.
//
// A call that needs other lanes waits for them in the runtime, which gives what all lanes brought to one function. A lane
// that is not there (finished, or on another branch) reads as zero. Where a call stands in the source, and through which calls
// of the program's own functions a thread came there, tells it from others.
#pragma once

#include <msl/atomics.h>
#include <msl/math.h>
#include <msl/runtime.h>

#if !defined(__clang__)
namespace std {  // as g++ wants it for what follows
struct source_location {
  struct __impl {
    const char* _M_file_name;
    const char* _M_function_name;
    unsigned _M_line, _M_column;
  };
};
}  // namespace std
#define ANYMPS_WHERE anymps_sync::place(__builtin_source_location())
#else
#define ANYMPS_WHERE anymps_sync::place(__builtin_LINE(), __builtin_COLUMN())
#endif

namespace anymps_sync {

using anymps_vectors::vec;

template <class T> using element = metal::anymps_element<T>;
template <class T> inline constexpr bool exchangeable = metal::is_arithmetic_v<T> && sizeof(element<T>) < 8;
#define ANYMPS_EXCHANGEABLE(T) class = metal::enable_if_t<anymps_sync::exchangeable<T>>

// A line and a column as one number that grows with them; there is room below for what else tells calls apart.
constexpr unsigned long place(unsigned long line, unsigned long column) {
  return (line << 12 | (column < 4096 ? column : 4095)) << 22;
}
#if !defined(__clang__)
ANYMPS_INLINE unsigned long place(const void* where) {
  const auto* at = static_cast<const std::source_location::__impl*>(where);
  return place(at->_M_line, at->_M_column);
}
#endif
constexpr unsigned long site(unsigned long place, int kind) { return place | static_cast<unsigned long>(kind) << 16; }

struct Place {  // to which no number of the program's goes before it goes to a parameter of another overload
  unsigned long at;
  constexpr Place(unsigned long where) : at(where) {}
};

// `f(x)` of the source is written `f((anymps_sync::calls(), x))` if `f` comes to a barrier or a SIMD call, and `Called` stands
// first in the body of `f`. Calls within the arguments have returned by then, whichever is made first.
#if defined(ANYMPS_CHECKED)  // not in the kernel, whose accesses are looked at
ANYMPS_INLINE void calls(unsigned long place = ANYMPS_WHERE) { anymps_check_calls(place); }
struct Called {
  ANYMPS_INLINE Called() { anymps_check_called(); }
  Called(const Called&) = delete;
  ANYMPS_INLINE ~Called() { anymps_check_returns(); }
};
#else
ANYMPS_INLINE void calls(unsigned long place = ANYMPS_WHERE) { anymps_rt_chain()->calls_from(place); }
class Called {
 public:
  ANYMPS_INLINE Called() : chain_(*anymps_rt_chain()) { chain_.called(); }
  Called(const Called&) = delete;
  ANYMPS_INLINE ~Called() { chain_.returns(); }

 private:
  anymps_rt::Chain& chain_;
};
#endif

template <class T> struct Slot {
  T value, result;
  T fill;
  unsigned by;
};
template <class T> const Slot<T>& at(void* const* slots, unsigned lane) { return *static_cast<const Slot<T>*>(slots[lane]); }
template <class T> Slot<T>& own(void* const* slots, unsigned lane) { return *static_cast<Slot<T>*>(slots[lane]); }
inline bool is_there(unsigned lanes, unsigned lane) { return lane < 32 && ((lanes >> lane) & 1u) != 0; }

template <class F> void each_lane(unsigned lanes, F f) {
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) f(static_cast<unsigned>(__builtin_ctz(rest)));
}

template <class T> struct wider { using type = T; };
template <> struct wider<half> { using type = float; };
template <> struct wider<bfloat> { using type = float; };
template <unsigned N> struct wider<vec<half, N>> { using type = vec<float, N>; };
template <unsigned N> struct wider<vec<bfloat, N>> { using type = vec<float, N>; };

// The tree of all 32 lanes, without a look at who is there: the compiler makes vectors of it.
template <class W, class Op, unsigned Half, unsigned Width> inline void halve(W* values) {
  if constexpr (Half > 0) {
    for (unsigned base = 0; base < 32; base += Width) {
      for (unsigned i = base; i < base + Half; ++i) values[i] = Op::apply(values[i], values[i + Half]);
    }
    halve<W, Op, Half / 2, Width>(values);
  }
}
template <class T, class Op, unsigned Width> void reduce_all(void* const* slots) {
  using W = typename wider<T>::type;
  W values[32];
  for (unsigned i = 0; i < 32; ++i) values[i] = W(at<T>(slots, i).value);
  halve<W, Op, Width / 2, Width>(values);
  for (unsigned i = 0; i < 32; ++i) own<T>(slots, i).result = T(values[i / Width * Width]);
}

// A tree over the lanes that are there, 32 wide: halves, quarters, and so on. Of `width` neighbours each.
template <class T, class Op, unsigned Width> void reduce(void* const* slots, unsigned lanes) {
  if (lanes == ~0u) return reduce_all<T, Op, Width>(slots);
  using W = typename wider<T>::type;  // rounded once, at the end
  W values[32];
  bool there[32];
  for (unsigned i = 0; i < 32; ++i) {
    there[i] = is_there(lanes, i);
    if (there[i]) values[i] = W(at<T>(slots, i).value);
  }
  for (unsigned half_width = Width / 2; half_width > 0; half_width /= 2) {
    for (unsigned base = 0; base < 32; base += Width) {
      for (unsigned i = base; i < base + half_width; ++i) {
        if (there[i] && there[i + half_width]) {
          values[i] = Op::apply(values[i], values[i + half_width]);
        } else if (there[i + half_width]) {
          values[i] = values[i + half_width];
          there[i] = true;
        }
      }
    }
  }
  each_lane(lanes, [&](unsigned lane) { own<T>(slots, lane).result = T(values[lane / Width * Width]); });
}
template <class T, class Op, bool Inclusive> void scan(void* const* slots, unsigned lanes) {
  T sum = Op::template start<T>();
  each_lane(lanes, [&](unsigned lane) {
    Slot<T>& mine = own<T>(slots, lane);
    const T before = sum;
    sum = Op::apply(sum, mine.value);
    mine.result = Inclusive ? sum : before;
  });
}

#define ANYMPS_OPERATION(NAME, EXPRESSION, START)                     \
  struct NAME {                                                       \
    template <class T> static T apply(T a, T b) { return static_cast<T>(EXPRESSION); } \
    template <class T> static T start() { return T(START); }          \
  };
ANYMPS_OPERATION(Sum, a + b, 0)
ANYMPS_OPERATION(Product, a * b, 1)
ANYMPS_OPERATION(Min, metal::min(a, b), 0)
ANYMPS_OPERATION(Max, metal::max(a, b), 0)
ANYMPS_OPERATION(And, a & b, 0)
ANYMPS_OPERATION(Or, a | b, 0)
ANYMPS_OPERATION(Xor, a ^ b, 0)
#undef ANYMPS_OPERATION

template <class T> ANYMPS_INLINE T exchange(T value, unsigned by, T fill, anymps_rt::Resolve resolve, unsigned long where) {
  Slot<T> slot{value, T(), fill, by};
  ANYMPS_SIMD(&slot, resolve, where);
  return slot.result;
}

enum Move { To, Down, Up, Xor_, FillDown, FillUp, RotateDown, RotateUp };
template <class T, Move move, unsigned Width> void shuffle(void* const* slots, unsigned lanes) {
  each_lane(lanes, [&](unsigned lane) {
    Slot<T>& mine = own<T>(slots, lane);
    const unsigned base = lane / Width * Width, inside = lane - base;
    const int to = move == To ? int(mine.by) : move == Xor_ ? int(inside ^ mine.by)
        : (move == Down || move == FillDown || move == RotateDown) ? int(inside) + int(mine.by) : int(inside) - int(mine.by);
    int source = to;
    if (move == RotateDown || move == RotateUp) source = to & int(Width - 1);
    if (move == FillDown && to >= int(Width)) {
      const unsigned from = base + unsigned(to - int(Width)) % Width;
      mine.result = is_there(lanes, from) ? at<T>(slots, from).fill : mine.fill;
    } else if (move == FillUp && to < 0) {
      const unsigned from = base + unsigned(to + int(Width)) % Width;
      mine.result = is_there(lanes, from) ? at<T>(slots, from).fill : mine.fill;
    } else if (source >= 0 && source < int(Width) && is_there(lanes, base + unsigned(source))) {
      mine.result = at<T>(slots, base + unsigned(source)).value;
    } else if ((move == Down && to >= int(Width)) || (move == Up && to < 0)) {
      mine.result = mine.value;  // nothing wraps around: these lanes keep what they have
    } else {
      ANYMPS_IF_CHECKED(if (source >= 0 && source < int(Width)) anymps_check_lane(lane, base + unsigned(source));)
      mine.result = T(0);
    }
  });
}
// Of `width` neighbours each, where the call says how many: the number stands above the lanes to go.
template <class T, bool down> void fill(void* const* slots, unsigned lanes) {
  each_lane(lanes, [&](unsigned lane) {
    Slot<T>& mine = own<T>(slots, lane);
    const int width = int(mine.by >> 16), inside = int(lane) % width, base = int(lane) - inside;
    const int to = inside + (down ? 1 : -1) * int(mine.by & 65535u);
    const bool within = to >= 0 && to < width;
    const unsigned from = unsigned(base + (to % width + width) % width);
    if (!is_there(lanes, from)) {
      ANYMPS_IF_CHECKED(anymps_check_lane(lane, from);)
      mine.result = T(0);
    } else {
      mine.result = within ? at<T>(slots, from).value : at<T>(slots, from).fill;
    }
  });
}
template <class T> void first_of(void* const* slots, unsigned lanes) {
  const T value = at<T>(slots, unsigned(__builtin_ctz(lanes))).value;
  each_lane(lanes, [&](unsigned lane) { own<T>(slots, lane).result = value; });
}
inline void vote(void* const* slots, unsigned lanes) {  // who says yes, and who is there
  unsigned yes = 0;
  each_lane(lanes, [&](unsigned lane) { yes |= unsigned(at<uint>(slots, lane).value != 0) << lane; });
  each_lane(lanes, [&](unsigned lane) {
    own<uint>(slots, lane).result = yes;
    own<uint>(slots, lane).fill = lanes;
  });
}
struct Votes { uint yes, there; };
ANYMPS_SYNC inline Votes count(bool yes, unsigned long where) {
  Slot<uint> slot{yes ? 1u : 0u, 0u, 0u, 0u};
  ANYMPS_SIMD(&slot, vote, where);
  return {slot.result, slot.fill};
}
inline void nothing(void* const*, unsigned) {}

}  // namespace anymps_sync

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4, mem_threadgroup_imageblock = 8, mem_object_data = 16 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(uint(a) | uint(b)); }
constexpr mem_flags operator&(mem_flags a, mem_flags b) { return mem_flags(uint(a) & uint(b)); }

ANYMPS_SYNC inline void threadgroup_barrier([[maybe_unused]] mem_flags flags, unsigned long place = ANYMPS_WHERE) {
  ANYMPS_BARRIER(flags, place);
}
ANYMPS_SYNC inline void threadgroup_barrier(
    [[maybe_unused]] mem_flags flags, memory_order, thread_scope = thread_scope_threadgroup, unsigned long place = ANYMPS_WHERE) {
  ANYMPS_BARRIER(flags, place);
}
ANYMPS_SYNC inline void simdgroup_barrier([[maybe_unused]] mem_flags flags, unsigned long place = ANYMPS_WHERE) {
  ANYMPS_SIMD_BARRIER(flags, anymps_sync::site(place, 0));
}
ANYMPS_INLINE void atomic_thread_fence(mem_flags, memory_order, thread_scope = thread_scope_device) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

class simd_vote {
 public:
  using vote_t = uint64_t;
  explicit constexpr simd_vote(vote_t bits = 0, vote_t there = 0xffffffffu) : bits_(bits), there_(there) {}
  constexpr bool all() const { return (bits_ & there_) == there_; }
  constexpr bool any() const { return bits_ != 0; }
  explicit constexpr operator vote_t() const { return bits_; }
 private:
  vote_t bits_, there_;
};
using quad_vote = simd_vote;

#define ANYMPS_REDUCE(NAME, OPERATION, WIDTH, KIND)                                                                       \
  template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T NAME(T value, unsigned long place = ANYMPS_WHERE) {                               \
    return anymps_sync::exchange<T>(value, 0, T(), anymps_sync::reduce<T, anymps_sync::OPERATION, WIDTH>, anymps_sync::site(place, KIND)); \
  }
ANYMPS_REDUCE(simd_sum, Sum, 32, 1)
ANYMPS_REDUCE(simd_product, Product, 32, 2)
ANYMPS_REDUCE(simd_min, Min, 32, 3)
ANYMPS_REDUCE(simd_max, Max, 32, 4)
ANYMPS_REDUCE(simd_and, And, 32, 5)
ANYMPS_REDUCE(simd_or, Or, 32, 6)
ANYMPS_REDUCE(simd_xor, Xor, 32, 7)
ANYMPS_REDUCE(quad_sum, Sum, 4, 8)
ANYMPS_REDUCE(quad_product, Product, 4, 9)
ANYMPS_REDUCE(quad_min, Min, 4, 10)
ANYMPS_REDUCE(quad_max, Max, 4, 11)
ANYMPS_REDUCE(quad_and, And, 4, 12)
ANYMPS_REDUCE(quad_or, Or, 4, 13)
ANYMPS_REDUCE(quad_xor, Xor, 4, 14)
#undef ANYMPS_REDUCE

#define ANYMPS_SCAN(NAME, OPERATION, INCLUSIVE, KIND)                                                                     \
  template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T NAME(T value, unsigned long place = ANYMPS_WHERE) {                               \
    return anymps_sync::exchange<T>(value, 0, T(), anymps_sync::scan<T, anymps_sync::OPERATION, INCLUSIVE>, anymps_sync::site(place, KIND)); \
  }
ANYMPS_SCAN(simd_prefix_inclusive_sum, Sum, true, 15)
ANYMPS_SCAN(simd_prefix_exclusive_sum, Sum, false, 16)
ANYMPS_SCAN(simd_prefix_inclusive_product, Product, true, 17)
ANYMPS_SCAN(simd_prefix_exclusive_product, Product, false, 18)
#undef ANYMPS_SCAN

#define ANYMPS_SHUFFLE(NAME, MOVE, WIDTH, KIND)                                                                           \
  template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T NAME(T value, ushort by, unsigned long place = ANYMPS_WHERE) {                    \
    return anymps_sync::exchange<T>(                                                                                      \
        value, by, T(), anymps_sync::shuffle<T, anymps_sync::MOVE, WIDTH>, anymps_sync::site(place, KIND));                \
  }
ANYMPS_SHUFFLE(simd_shuffle, To, 32, 20)
ANYMPS_SHUFFLE(simd_broadcast, To, 32, 21)
ANYMPS_SHUFFLE(simd_shuffle_down, Down, 32, 22)
ANYMPS_SHUFFLE(simd_shuffle_up, Up, 32, 23)
ANYMPS_SHUFFLE(simd_shuffle_xor, Xor_, 32, 24)
ANYMPS_SHUFFLE(simd_shuffle_rotate_down, RotateDown, 32, 25)
ANYMPS_SHUFFLE(simd_shuffle_rotate_up, RotateUp, 32, 26)
ANYMPS_SHUFFLE(quad_shuffle, To, 4, 27)
ANYMPS_SHUFFLE(quad_broadcast, To, 4, 28)
ANYMPS_SHUFFLE(quad_shuffle_down, Down, 4, 29)
ANYMPS_SHUFFLE(quad_shuffle_up, Up, 4, 30)
ANYMPS_SHUFFLE(quad_shuffle_xor, Xor_, 4, 31)
ANYMPS_SHUFFLE(quad_shuffle_rotate_down, RotateDown, 4, 32)
ANYMPS_SHUFFLE(quad_shuffle_rotate_up, RotateUp, 4, 33)
#undef ANYMPS_SHUFFLE
template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T simd_shuffle_and_fill_down(T value, T fill, ushort by, anymps_sync::Place place = ANYMPS_WHERE) {
  return anymps_sync::exchange<T>(value, by, fill, anymps_sync::shuffle<T, anymps_sync::FillDown, 32>, anymps_sync::site(place.at, 34));
}
template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T simd_shuffle_and_fill_up(T value, T fill, ushort by, anymps_sync::Place place = ANYMPS_WHERE) {
  return anymps_sync::exchange<T>(value, by, fill, anymps_sync::shuffle<T, anymps_sync::FillUp, 32>, anymps_sync::site(place.at, 35));
}
template <class T, ANYMPS_EXCHANGEABLE(T)>
ANYMPS_SYNC T simd_shuffle_and_fill_down(T value, T fill, ushort by, ushort modulo, unsigned long place = ANYMPS_WHERE) {
  const unsigned both = unsigned(modulo) << 16 | by;
  return anymps_sync::exchange<T>(value, both, fill, anymps_sync::fill<T, true>, anymps_sync::site(place, 48));
}
template <class T, ANYMPS_EXCHANGEABLE(T)>
ANYMPS_SYNC T simd_shuffle_and_fill_up(T value, T fill, ushort by, ushort modulo, unsigned long place = ANYMPS_WHERE) {
  const unsigned both = unsigned(modulo) << 16 | by;
  return anymps_sync::exchange<T>(value, both, fill, anymps_sync::fill<T, false>, anymps_sync::site(place, 49));
}
template <class T, ANYMPS_EXCHANGEABLE(T)> ANYMPS_SYNC T simd_broadcast_first(T value, unsigned long place = ANYMPS_WHERE) {
  return anymps_sync::exchange<T>(value, 0, T(), anymps_sync::first_of<T>, anymps_sync::site(place, 36));
}
ANYMPS_SYNC inline bool simd_any(bool yes, unsigned long place = ANYMPS_WHERE) { return anymps_sync::count(yes, anymps_sync::site(place, 37)).yes != 0; }
ANYMPS_SYNC inline bool simd_all(bool yes, unsigned long place = ANYMPS_WHERE) {
  const anymps_sync::Votes votes = anymps_sync::count(yes, anymps_sync::site(place, 38));
  return votes.yes == votes.there;
}
ANYMPS_SYNC inline simd_vote simd_ballot(bool yes, unsigned long place = ANYMPS_WHERE) {
  const anymps_sync::Votes votes = anymps_sync::count(yes, anymps_sync::site(place, 39));
  return simd_vote(votes.yes, votes.there);
}
ANYMPS_SYNC inline simd_vote simd_active_threads_mask(unsigned long place = ANYMPS_WHERE) {
  const anymps_sync::Votes votes = anymps_sync::count(true, anymps_sync::site(place, 40));
  return simd_vote(votes.yes, votes.there);
}
ANYMPS_SYNC inline bool simd_is_first(unsigned long place = ANYMPS_WHERE) {
  return unsigned(__builtin_ctz(anymps_sync::count(true, anymps_sync::site(place, 41)).there)) == anymps_rt_lane();
}
inline bool simd_is_helper_thread() { return false; }
inline uint anymps_quad(uint bits) { return (bits >> (anymps_rt_lane() & ~3u)) & 15u; }
ANYMPS_SYNC inline bool quad_any(bool yes, unsigned long place = ANYMPS_WHERE) {
  return anymps_quad(anymps_sync::count(yes, anymps_sync::site(place, 42)).yes) != 0;
}
ANYMPS_SYNC inline bool quad_all(bool yes, unsigned long place = ANYMPS_WHERE) {
  const anymps_sync::Votes votes = anymps_sync::count(yes, anymps_sync::site(place, 43));
  return anymps_quad(votes.yes) == anymps_quad(votes.there);
}
ANYMPS_SYNC inline quad_vote quad_ballot(bool yes, unsigned long place = ANYMPS_WHERE) {
  const anymps_sync::Votes votes = anymps_sync::count(yes, anymps_sync::site(place, 44));
  return quad_vote(anymps_quad(votes.yes), anymps_quad(votes.there));
}
ANYMPS_SYNC inline bool quad_is_first(unsigned long place = ANYMPS_WHERE) {
  const uint there = anymps_quad(anymps_sync::count(true, anymps_sync::site(place, 45)).there);
  return unsigned(__builtin_ctz(there)) == (anymps_rt_lane() & 3u);
}

// Eight by eight values, two a lane: row ((l >> 2) & 4) | ((l >> 1) & 3), columns c and c + 1 with
// c = ((l >> 1) & 4) | ((l & 1) << 1).
template <class T, int Rows = 8, int Columns = 8> struct simdgroup_matrix {
  static_assert(Rows == 8 && Columns == 8, "a simdgroup_matrix is 8 by 8");
  anymps_vectors::vec<T, 2> anymps_pair;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T value) {
    const unsigned row = anymps_row(), column = anymps_column();
    anymps_pair = anymps_vectors::vec<T, 2>(row == column ? value : T(0), row == column + 1 ? value : T(0));
  }
  anymps_vectors::vec<T, 2>& thread_elements() { return anymps_pair; }
  const anymps_vectors::vec<T, 2>& thread_elements() const { return anymps_pair; }
  static unsigned anymps_row(unsigned lane = anymps_rt_lane()) { return ((lane >> 2) & 4) | ((lane >> 1) & 3); }
  static unsigned anymps_column(unsigned lane = anymps_rt_lane()) { return ((lane >> 1) & 4) | ((lane & 1) << 1); }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int R = 8, int C = 8> simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, R, C> result;
  result.anymps_pair = anymps_vectors::vec<T, 2>(value);
  return result;
}
template <class T, int R = 8, int C = 8> simdgroup_matrix<T, R, C> make_diagonal_simdgroup_matrix(T value) {
  return simdgroup_matrix<T, R, C>(value);
}
template <class T, class P>
void simdgroup_load(simdgroup_matrix<T, 8, 8>& into, const P* from, ulong row_length = 8, ulong2 origin = ulong2(0), bool transpose = false) {
  using M = simdgroup_matrix<T, 8, 8>;
  const ulong row = M::anymps_row(), column = M::anymps_column();
  from += origin.y * row_length + origin.x;
  into.anymps_pair.x = static_cast<T>(transpose ? from[column * row_length + row] : from[row * row_length + column]);
  into.anymps_pair.y = static_cast<T>(transpose ? from[(column + 1) * row_length + row] : from[row * row_length + column + 1]);
}
template <class T, class P>
void simdgroup_store(simdgroup_matrix<T, 8, 8> from, P* into, ulong row_length = 8, ulong2 origin = ulong2(0), bool transpose = false) {
  using M = simdgroup_matrix<T, 8, 8>;
  const ulong row = M::anymps_row(), column = M::anymps_column();
  into += origin.y * row_length + origin.x;
  into[transpose ? column * row_length + row : row * row_length + column] = static_cast<P>(from.anymps_pair.x);
  into[transpose ? (column + 1) * row_length + row : row * row_length + column + 1] = static_cast<P>(from.anymps_pair.y);
}

template <class D, class A, class B, class C> struct anymps_product {
  D* d;
  const A* a;
  const B* b;
  const C* c;
  static void resolve(void* const* slots, unsigned lanes) {
    ANYMPS_IF_CHECKED(if (lanes != ~0u) anymps_check_matrix(lanes);)
    float a[8][8] = {}, b[8][8] = {};
    anymps_sync::each_lane(lanes, [&](unsigned lane) {
      const auto& mine = *static_cast<const anymps_product*>(slots[lane]);
      const unsigned row = A::anymps_row(lane), column = A::anymps_column(lane);
      a[row][column] = static_cast<float>(mine.a->anymps_pair.x);
      a[row][column + 1] = static_cast<float>(mine.a->anymps_pair.y);
      b[row][column] = static_cast<float>(mine.b->anymps_pair.x);
      b[row][column + 1] = static_cast<float>(mine.b->anymps_pair.y);
    });
    anymps_sync::each_lane(lanes, [&](unsigned lane) {
      const auto& mine = *static_cast<const anymps_product*>(slots[lane]);
      const unsigned row = A::anymps_row(lane), column = A::anymps_column(lane);
      float x = mine.c == nullptr ? 0.0f : static_cast<float>(mine.c->anymps_pair.x);
      float y = mine.c == nullptr ? 0.0f : static_cast<float>(mine.c->anymps_pair.y);
      for (unsigned k = 0; k < 8; ++k) {
        x += a[row][k] * b[k][column];
        y += a[row][k] * b[k][column + 1];
      }
      mine.d->anymps_pair = decltype(mine.d->anymps_pair)(x, y);
    });
  }
};
template <class D, class A, class B, class C>
ANYMPS_SYNC void simdgroup_multiply_accumulate(
    simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<C, 8, 8> c,
    unsigned long place = ANYMPS_WHERE) {
  using Product = anymps_product<simdgroup_matrix<D, 8, 8>, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<C, 8, 8>>;
  Product product{&d, &a, &b, &c};
  ANYMPS_SIMD(&product, Product::resolve, anymps_sync::site(place, 46));
}
template <class D, class A, class B>
ANYMPS_SYNC void simdgroup_multiply(
    simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b, unsigned long place = ANYMPS_WHERE) {
  using Product = anymps_product<simdgroup_matrix<D, 8, 8>, simdgroup_matrix<A, 8, 8>, simdgroup_matrix<B, 8, 8>, simdgroup_matrix<D, 8, 8>>;
  Product product{&d, &a, &b, nullptr};
  ANYMPS_SIMD(&product, Product::resolve, anymps_sync::site(place, 47));
}
template <class T> simdgroup_matrix<T, 8, 8> operator*(simdgroup_matrix<T, 8, 8> a, simdgroup_matrix<T, 8, 8> b) {
  simdgroup_matrix<T, 8, 8> d;
  simdgroup_multiply(d, a, b, 0);
  return d;
}

}  // namespace metal
