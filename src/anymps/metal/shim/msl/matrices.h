// float2x2 to float4x4 and those of half: columns of vectors.
#pragma once

#include <msl/math.h>

namespace metal {

template <class T, int Columns, int Rows> struct matrix {
  using column = anymps_vectors::vec<T, unsigned(Rows)>;
  column columns[Columns];
  matrix() = default;
  explicit constexpr matrix(T diagonal) : columns{} {
    for (int i = 0; i < Columns; ++i) {
      columns[i] = column(T(0));
      if (i < Rows) columns[i][size_t(i)] = diagonal;
    }
  }
  template <class U> explicit constexpr matrix(const matrix<U, Columns, Rows>& other) : columns{} {
    for (int i = 0; i < Columns; ++i) columns[i] = column(other.columns[i]);
  }
  template <class... C, class = enable_if_t<sizeof...(C) + 2 == unsigned(Columns) && conjunction_v<is_convertible<C, column>...>>>
  constexpr matrix(column a, column b, C... more) : columns{a, b, column(more)...} {}
  template <class... S, class = enable_if_t<sizeof...(S) == unsigned(Columns * Rows) && conjunction_v<is_arithmetic<S>...>>, class = void, class = void>
  constexpr matrix(S... values) : columns{} {
    const T all[] = {T(values)...};
    for (int c = 0; c < Columns; ++c)
      for (int r = 0; r < Rows; ++r) columns[c][size_t(r)] = all[c * Rows + r];
  }
  constexpr column& operator[](size_t i) { return columns[i]; }
  constexpr const column& operator[](size_t i) const { return columns[i]; }
  friend matrix operator+(matrix a, const matrix& b) { for (int i = 0; i < Columns; ++i) a.columns[i] += b.columns[i]; return a; }
  friend matrix operator-(matrix a, const matrix& b) { for (int i = 0; i < Columns; ++i) a.columns[i] -= b.columns[i]; return a; }
  friend matrix operator-(matrix a) { for (int i = 0; i < Columns; ++i) a.columns[i] = -a.columns[i]; return a; }
  friend matrix operator*(matrix a, T b) { for (int i = 0; i < Columns; ++i) a.columns[i] *= b; return a; }
  friend matrix operator*(T b, matrix a) { return a * b; }
  friend matrix operator/(matrix a, T b) { for (int i = 0; i < Columns; ++i) a.columns[i] /= b; return a; }
  friend column operator*(const matrix& m, const anymps_vectors::vec<T, unsigned(Columns)>& v) {
    column sum = m.columns[0] * v.at(0);
    for (unsigned i = 1; i < unsigned(Columns); ++i) sum += m.columns[i] * v.at(i);
    return sum;
  }
  friend anymps_vectors::vec<T, unsigned(Columns)> operator*(const column& v, const matrix& m) {
    anymps_vectors::vec<T, unsigned(Columns)> r;
    for (unsigned i = 0; i < unsigned(Columns); ++i) r[i] = dot(v, m.columns[i]);
    return r;
  }
  matrix& operator+=(const matrix& b) { return *this = *this + b; }
  matrix& operator-=(const matrix& b) { return *this = *this - b; }
  matrix& operator*=(T b) { return *this = *this * b; }
};
template <class T, int K, int R, int C> matrix<T, C, R> operator*(const matrix<T, K, R>& a, const matrix<T, C, K>& b) {
  matrix<T, C, R> r;
  for (int i = 0; i < C; ++i) r.columns[i] = a * b.columns[i];
  return r;
}
template <class T, int C, int R> matrix<T, R, C> transpose(const matrix<T, C, R>& m) {
  matrix<T, R, C> r;
  for (int i = 0; i < C; ++i)
    for (int j = 0; j < R; ++j) r.columns[j][size_t(i)] = m.columns[i].at(unsigned(j));
  return r;
}
template <class T> T determinant(const matrix<T, 2, 2>& m) { return m[0].x * m[1].y - m[0].y * m[1].x; }
template <class T> T determinant(const matrix<T, 3, 3>& m) { return dot(m[0], cross(m[1], m[2])); }
template <class T> T determinant(const matrix<T, 4, 4>& m) {
  const T a = m[0].x * m[1].y - m[0].y * m[1].x, b = m[0].x * m[1].z - m[0].z * m[1].x, c = m[0].x * m[1].w - m[0].w * m[1].x;
  const T d = m[0].y * m[1].z - m[0].z * m[1].y, e = m[0].y * m[1].w - m[0].w * m[1].y, f = m[0].z * m[1].w - m[0].w * m[1].z;
  const T g = m[2].x * m[3].y - m[2].y * m[3].x, h = m[2].x * m[3].z - m[2].z * m[3].x, i = m[2].x * m[3].w - m[2].w * m[3].x;
  const T j = m[2].y * m[3].z - m[2].z * m[3].y, k = m[2].y * m[3].w - m[2].w * m[3].y, l = m[2].z * m[3].w - m[2].w * m[3].z;
  return a * l - b * k + c * j + d * i - e * h + f * g;
}

}  // namespace metal

#define ANYMPS_MATRICES(T)                    \
  using T##2x2 = metal::matrix<T, 2, 2>;      \
  using T##2x3 = metal::matrix<T, 2, 3>;      \
  using T##2x4 = metal::matrix<T, 2, 4>;      \
  using T##3x2 = metal::matrix<T, 3, 2>;      \
  using T##3x3 = metal::matrix<T, 3, 3>;      \
  using T##3x4 = metal::matrix<T, 3, 4>;      \
  using T##4x2 = metal::matrix<T, 4, 2>;      \
  using T##4x3 = metal::matrix<T, 4, 3>;      \
  using T##4x4 = metal::matrix<T, 4, 4>;
ANYMPS_MATRICES(float)
ANYMPS_MATRICES(half)
namespace metal {
using ::float2x2; using ::float2x3; using ::float2x4; using ::float3x2; using ::float3x3; using ::float3x4;
using ::float4x2; using ::float4x3; using ::float4x4; using ::half2x2; using ::half3x3; using ::half4x4;
}  // namespace metal
#undef ANYMPS_MATRICES
