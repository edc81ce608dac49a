// Atomics: relaxed, as Metal's are, by the compiler's own operations.
#pragma once

#include <msl/traits.h>

namespace metal {

enum memory_order { memory_order_relaxed = 0, memory_order_acquire, memory_order_release, memory_order_acq_rel, memory_order_seq_cst };
enum thread_scope { thread_scope_thread, thread_scope_simdgroup, thread_scope_threadgroup, thread_scope_device };

template <class T> struct atomic {
  T anymps_value;
  atomic() = default;
  constexpr atomic(T value) : anymps_value(value) {}
};
template <class T> using _atomic = atomic<T>;

using atomic_int = atomic<int>;
using atomic_uint = atomic<uint>;
using atomic_bool = atomic<bool>;
using atomic_float = atomic<float>;
using atomic_ulong = atomic<ulong>;

template <class T> ANYMPS_INLINE void atomic_init(volatile atomic<T>* object, T value) {
  T copy = value;
  __atomic_store(const_cast<T*>(&object->anymps_value), &copy, __ATOMIC_RELAXED);
}
template <class T, class V> ANYMPS_INLINE void atomic_store_explicit(volatile atomic<T>* object, V value, memory_order) {
  T copy = static_cast<T>(value);
  __atomic_store(const_cast<T*>(&object->anymps_value), &copy, __ATOMIC_RELAXED);
}
template <class T> ANYMPS_INLINE T atomic_load_explicit(const volatile atomic<T>* object, memory_order) {
  T result;
  __atomic_load(const_cast<T*>(&object->anymps_value), &result, __ATOMIC_RELAXED);
  return result;
}
template <class T, class V> ANYMPS_INLINE T atomic_exchange_explicit(volatile atomic<T>* object, V value, memory_order) {
  T copy = static_cast<T>(value), result;
  __atomic_exchange(const_cast<T*>(&object->anymps_value), &copy, &result, __ATOMIC_RELAXED);
  return result;
}
template <class T, class V>
ANYMPS_INLINE bool atomic_compare_exchange_weak_explicit(volatile atomic<T>* object, T* expected, V desired, memory_order, memory_order) {
  T copy = static_cast<T>(desired);
  return __atomic_compare_exchange(const_cast<T*>(&object->anymps_value), expected, &copy, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

// For what the compiler has no operation of. By the order the checker tells it from such a loop of a program.
template <class T, class F> ANYMPS_INLINE T anymps_update(volatile atomic<T>* object, F change) {
#if defined(ANYMPS_CHECKED)
  constexpr int order = __ATOMIC_SEQ_CST;
#else
  constexpr int order = __ATOMIC_RELAXED;
#endif
  T* const at = const_cast<T*>(&object->anymps_value);
  T old, changed;
  __atomic_load(at, &old, order);
  do {
    changed = change(old);
  } while (!__atomic_compare_exchange(at, &old, &changed, true, order, order));
  return old;
}
#define ANYMPS_FETCH(NAME, BUILTIN, EXPRESSION)                                                                  \
  template <class T, class V> ANYMPS_INLINE T NAME##_explicit(volatile atomic<T>* object, V operand, memory_order) { \
    const T b = static_cast<T>(operand);                                                                         \
    if constexpr (is_integral_v<T>) {                                                                            \
      return BUILTIN(const_cast<T*>(&object->anymps_value), b, __ATOMIC_RELAXED);                                \
    } else {                                                                                                     \
      return anymps_update(object, [b](T a) { return static_cast<T>(EXPRESSION); });                             \
    }                                                                                                            \
  }
ANYMPS_FETCH(atomic_fetch_add, __atomic_fetch_add, a + b)
ANYMPS_FETCH(atomic_fetch_sub, __atomic_fetch_sub, a - b)
#undef ANYMPS_FETCH
#define ANYMPS_FETCH_BITS(NAME, BUILTIN)                                                                         \
  template <class T, class V> ANYMPS_INLINE T NAME##_explicit(volatile atomic<T>* object, V operand, memory_order) { \
    return BUILTIN(const_cast<T*>(&object->anymps_value), static_cast<T>(operand), __ATOMIC_RELAXED);            \
  }
ANYMPS_FETCH_BITS(atomic_fetch_and, __atomic_fetch_and)
ANYMPS_FETCH_BITS(atomic_fetch_or, __atomic_fetch_or)
ANYMPS_FETCH_BITS(atomic_fetch_xor, __atomic_fetch_xor)
#undef ANYMPS_FETCH_BITS
template <class T, class V> ANYMPS_INLINE T atomic_fetch_min_explicit(volatile atomic<T>* object, V operand, memory_order) {
  const T b = static_cast<T>(operand);
  return anymps_update(object, [b](T a) { return b < a ? b : a; });
}
template <class T, class V> ANYMPS_INLINE T atomic_fetch_max_explicit(volatile atomic<T>* object, V operand, memory_order) {
  const T b = static_cast<T>(operand);
  return anymps_update(object, [b](T a) { return a < b ? b : a; });
}
template <class T, class V> ANYMPS_INLINE void atomic_min_explicit(volatile atomic<T>* object, V operand, memory_order order) {
  atomic_fetch_min_explicit(object, operand, order);
}
template <class T, class V> ANYMPS_INLINE void atomic_max_explicit(volatile atomic<T>* object, V operand, memory_order order) {
  atomic_fetch_max_explicit(object, operand, order);
}

}  // namespace metal
