// The mean and the sum of squares of a row by Welford's method, as c10/metal/reduction_utils.h has it: for one row, and for
// rows side by side. It goes element by element, each of which waits for a division, so that rows share vectors.
//
// One row and many give the same bits: compilers may join a product and a sum into one operation, and do so or not by the
// width of a vector. Here they may not.
#pragma once

#include <msl/runtime.h>
#include <msl/vectors.h>

#if defined(__clang__)
#define ANYMPS_ROUNDED(X) (X)  // enough in a statement of its own
#else
#define ANYMPS_ROUNDED(X) __builtin_assoc_barrier(X)
#endif

namespace anymps_welford {

constexpr unsigned kRows = 16;
typedef float RowsOf __attribute__((vector_size(kRows * sizeof(float))));

template <class V> struct Moments {
  V mean, m2, weight;
};

// Of numbers: `threadgroup_welford_reduce`.
struct Elements {
  using Element = float;
  static constexpr unsigned kParts = 1;
  static ANYMPS_INLINE void parts_of(float value, float (&parts)[kParts]) { parts[0] = value; }
  template <class V> static ANYMPS_INLINE void start(Moments<V>& r, const V (&x)[kParts]) { r = {x[0], V{}, V{}}; }
  template <class V> static ANYMPS_INLINE void step(Moments<V>& r, const V (&x)[kParts], unsigned index) {
    const V delta = x[0] - r.mean;
    r.mean += delta / float(index + 1);
    const V more = ANYMPS_ROUNDED(delta * (x[0] - r.mean));
    r.m2 += more;
  }
  static ANYMPS_INLINE metal::float3 result(float mean, float m2, float, unsigned size) {
    return metal::float3(mean, m2, float(size));
  }
};

// Of what threads have found, a mean, a sum of squares and a weight each: `threadgroup_welford_combine`.
struct Parts {
  using Element = metal::float3;
  static constexpr unsigned kParts = 3;
  static ANYMPS_INLINE void parts_of(const metal::float3& value, float (&parts)[kParts]) {
    parts[0] = value.x;
    parts[1] = value.y;
    parts[2] = value.z;
  }
  template <class V> static ANYMPS_INLINE void start(Moments<V>& r, const V (&x)[kParts]) { r = {x[0], x[1], x[2]}; }
  template <class V> static ANYMPS_INLINE void step(Moments<V>& r, const V (&x)[kParts], unsigned) {
    const V delta = x[0] - r.mean, weight = r.weight + x[2];
    const V part = weight != 0.0f ? x[2] / weight : V{};
    const V mean = ANYMPS_ROUNDED(delta * part);
    const V m2 = ANYMPS_ROUNDED(delta * delta * r.weight * part);
    r.mean += mean;
    r.m2 = (r.m2 + x[1]) + m2;
    r.weight = weight;
  }
  static ANYMPS_INLINE metal::float3 result(float mean, float m2, float weight, unsigned) {
    return metal::float3(mean, m2, weight);
  }
};

template <class W> ANYMPS_UNCHECKED metal::float3 one_row(const typename W::Element* data, unsigned size) {
  Moments<float> moments;
  float x[W::kParts];
  W::parts_of(data[0], x);
  W::start(moments, x);
  for (unsigned i = 1; i < size; ++i) {
    W::parts_of(data[i], x);
    W::step(moments, x, i);
  }
  return W::result(moments.mean, moments.m2, moments.weight, size);
}

// The same for each thread of a group.
#if defined(ANYMPS_CHECKED)
template <class W> ANYMPS_UNCHECKED __attribute__((noinline)) void take_row(
    const typename W::Element* data, unsigned size, float* kept, bool known, float (&to)[3]) {
  if (!known) {
    const metal::float3 result = one_row<W>(data, size);
    for (unsigned i = 0; i < 3; ++i) kept[i] = result[i];
  }
  for (unsigned i = 0; i < 3; ++i) to[i] = kept[i];
}
template <class W> ANYMPS_INLINE metal::float3 of_row(const typename W::Element* data, unsigned size) {
  bool known;
  float result[3];
  // No fewer than one element is read.
  float* const kept = anymps_check_row(data, sizeof(typename W::Element), W::kParts, size == 0 ? 1 : size, &known);
  take_row<W>(data, size, kept, known, result);
  return metal::float3(result[0], result[1], result[2]);
}
#else
template <class W> ANYMPS_INLINE metal::float3 of_row(const typename W::Element* data, unsigned size) {
  return one_row<W>(data, size);
}
#endif

template <class W> struct Row {
  const typename W::Element* data;
  unsigned size;
  metal::float3 result;
};

// Fills the results of at most `kRows` rows of the same length. In place of rows that are not there stands the first.
template <class W> void same_length(Row<W>* const (&rows)[kRows], unsigned count) {
  const unsigned size = rows[0]->size;
  Moments<RowsOf> moments{};
  for (unsigned i = 0; i < size; ++i) {
    RowsOf x[W::kParts];
    for (unsigned row = 0; row < kRows; ++row) {
      float parts[W::kParts];
      W::parts_of(rows[row < count ? row : 0]->data[i], parts);
      for (unsigned part = 0; part < W::kParts; ++part) x[part][row] = parts[part];
    }
    if (i == 0) W::start(moments, x);
    else W::step(moments, x, i);
  }
  for (unsigned row = 0; row < count; ++row) {
    rows[row]->result = W::result(moments.mean[row], moments.m2[row], moments.weight[row], size);
  }
}

// For the rows of all lanes that are there: `Resolve` of msl/runtime.h.
template <class W> void by_rows(void* const* slots, unsigned lanes) {
  while (lanes != 0) {
    Row<W>* rows[kRows];
    unsigned count = 0;
    for (unsigned rest = lanes; rest != 0 && count < kRows; rest &= rest - 1) {
      const unsigned lane = unsigned(__builtin_ctz(rest));
      rows[count] = static_cast<Row<W>*>(slots[lane]);
      if (rows[count]->size != rows[0]->size) continue;
      ++count;
      lanes &= ~(1u << lane);
    }
    same_length<W>(rows, count);
  }
}

}  // namespace anymps_welford
