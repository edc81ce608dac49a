// What the compiler calls in checked code, by the names that its sanitizers give to it; their own libraries are not linked.
//
// -fsanitize=thread calls before each access of memory and in the place of each atomic operation, -fsanitize=shift-exponent,
// integer-divide-by-zero and bounds where what they look for has happened.
#include "checker.h"

using anymps_check::checker;

#define ANYMPS_ACCESS(ADDRESS, SIZE, HOW)                                                                     \
  checker.look(                                                                                               \
      reinterpret_cast<uintptr_t>(const_cast<const void*>(static_cast<const volatile void*>(ADDRESS))),       \
      static_cast<unsigned>(SIZE), anymps_check::HOW, ANYMPS_CALLER)

namespace {

void look_at_change(const volatile void* at, unsigned size, int order, const anymps_check::Caller& caller) {
  const auto address = reinterpret_cast<uintptr_t>(const_cast<const void*>(at));
  checker.look(address, size, order == __ATOMIC_RELAXED ? anymps_check::AtomicWrite : anymps_check::AtomicAdd, caller);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

#define ANYMPS_SIZE(N)                                                       \
  void __tsan_read##N(void* at) { ANYMPS_ACCESS(at, N, Read); }              \
  void __tsan_write##N(void* at) { ANYMPS_ACCESS(at, N, Write); }            \
  void __tsan_unaligned_read##N(void* at) { ANYMPS_ACCESS(at, N, Read); }    \
  void __tsan_unaligned_write##N(void* at) { ANYMPS_ACCESS(at, N, Write); }  \
  void __tsan_volatile_read##N(void* at) { ANYMPS_ACCESS(at, N, Read); }     \
  void __tsan_volatile_write##N(void* at) { ANYMPS_ACCESS(at, N, Write); }   \
  void __tsan_read_write##N(void* at) {                                      \
    ANYMPS_ACCESS(at, N, Read);                                              \
    ANYMPS_ACCESS(at, N, Write);                                             \
  }
ANYMPS_SIZE(1)
ANYMPS_SIZE(2)
ANYMPS_SIZE(4)
ANYMPS_SIZE(8)
ANYMPS_SIZE(16)

void __tsan_read_range(void* at, uintptr_t size) { ANYMPS_ACCESS(at, size, Read); }
void __tsan_write_range(void* at, uintptr_t size) { ANYMPS_ACCESS(at, size, Write); }
void* __tsan_memcpy(void* to, const void* from, uintptr_t size) {
  ANYMPS_ACCESS(from, size, Read);
  ANYMPS_ACCESS(to, size, Write);
  return std::memcpy(to, from, size);
}
void* __tsan_memmove(void* to, const void* from, uintptr_t size) {
  ANYMPS_ACCESS(from, size, Read);
  ANYMPS_ACCESS(to, size, Write);
  return std::memmove(to, from, size);
}
void* __tsan_memset(void* to, int value, uintptr_t size) {
  ANYMPS_ACCESS(to, size, Write);
  return std::memset(to, value, size);
}

// Metal's memory order is relaxed, whatever is asked for. Another one is from the shim: sums that it makes in a loop.
#define ANYMPS_CHANGE(BITS, T, NAME, HOW)                                        \
  T __tsan_atomic##BITS##_##NAME(volatile T* at, T value, int) {                 \
    ANYMPS_ACCESS(at, sizeof(T), AtomicRead);                                    \
    ANYMPS_ACCESS(at, sizeof(T), HOW);                                           \
    return __atomic_##NAME(at, value, __ATOMIC_RELAXED);                         \
  }
#define ANYMPS_EXCHANGE(BITS, T, NAME, WEAK)                                                                  \
  int __tsan_atomic##BITS##_compare_exchange_##NAME(volatile T* at, T* expected, T desired, int order, int) { \
    ANYMPS_ACCESS(at, sizeof(T), AtomicRead);                                                                 \
    look_at_change(at, sizeof(T), order, ANYMPS_CALLER);                                                      \
    return __atomic_compare_exchange_n(at, expected, desired, WEAK, __ATOMIC_RELAXED, __ATOMIC_RELAXED);      \
  }
#define ANYMPS_EXCHANGE_VALUE(BITS, T)                                                                        \
  T __tsan_atomic##BITS##_compare_exchange_val(volatile T* at, T expected, T desired, int order, int) {       \
    ANYMPS_ACCESS(at, sizeof(T), AtomicRead);                                                                 \
    look_at_change(at, sizeof(T), order, ANYMPS_CALLER);                                                      \
    __atomic_compare_exchange_n(at, &expected, desired, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);           \
    return expected;                                                                                          \
  }
#define ANYMPS_ATOMICS(BITS, T)                                   \
  T __tsan_atomic##BITS##_load(const volatile T* at, int order) { \
    const auto address = reinterpret_cast<uintptr_t>(const_cast<const T*>(at));                               \
    checker.look(                                                                                             \
        address, sizeof(T), order == __ATOMIC_RELAXED ? anymps_check::AtomicLoad : anymps_check::AtomicRead,  \
        ANYMPS_CALLER);                                           \
    return __atomic_load_n(at, __ATOMIC_RELAXED);                 \
  }                                                               \
  void __tsan_atomic##BITS##_store(volatile T* at, T value, int) { \
    ANYMPS_ACCESS(at, sizeof(T), AtomicStore);                    \
    __atomic_store_n(at, value, __ATOMIC_RELAXED);                \
  }                                                               \
  T __tsan_atomic##BITS##_exchange(volatile T* at, T value, int) { \
    ANYMPS_ACCESS(at, sizeof(T), AtomicRead);                     \
    ANYMPS_ACCESS(at, sizeof(T), AtomicWrite);                    \
    return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);      \
  }                                                               \
  ANYMPS_CHANGE(BITS, T, fetch_add, AtomicAdd)                    \
  ANYMPS_CHANGE(BITS, T, fetch_sub, AtomicAdd)                    \
  ANYMPS_CHANGE(BITS, T, fetch_and, AtomicWrite)                  \
  ANYMPS_CHANGE(BITS, T, fetch_or, AtomicWrite)                   \
  ANYMPS_CHANGE(BITS, T, fetch_xor, AtomicWrite)                  \
  ANYMPS_CHANGE(BITS, T, fetch_nand, AtomicWrite)                 \
  ANYMPS_EXCHANGE_VALUE(BITS, T)                                  \
  ANYMPS_EXCHANGE(BITS, T, weak, true)                            \
  ANYMPS_EXCHANGE(BITS, T, strong, false)
ANYMPS_ATOMICS(8, uint8_t)
ANYMPS_ATOMICS(16, uint16_t)
ANYMPS_ATOMICS(32, uint32_t)
ANYMPS_ATOMICS(64, uint64_t)
void __tsan_atomic_thread_fence(int) {}
void __tsan_atomic_signal_fence(int) {}
}

// What the undefined behaviour sanitizers hand over (their ABI of gcc 5 and clang 3.9 on).
namespace {

struct Location {
  const char* file;
  uint32_t line, column;
};
struct Type {
  uint16_t kind, info;  // of an integer: the lowest bit tells a signed one, the others the logarithm of its width
  char name[1];
};
struct ShiftData {
  Location location;
  const Type *left, *right;
};
struct MismatchData {
  Location location;
  const Type* type;
  unsigned char alignment;  // its logarithm
  unsigned char how;
};
struct IndexData {
  Location location;
  const Type *array, *index;
};

// An integer of up to 64 bits, which is handed over in the place of a pointer to it.
int64_t number(const Type* type, uintptr_t handle) {
  const unsigned width = 1u << (type->info >> 1);
  if (width > 64) return static_cast<int64_t>(*reinterpret_cast<const uint64_t*>(handle));
  const unsigned spare = 64 - width;
  const uint64_t left = static_cast<uint64_t>(handle) << spare;
  return (type->info & 1u) != 0 ? static_cast<int64_t>(left) >> spare : static_cast<int64_t>(left >> spare);
}

}  // namespace

#define ANYMPS_RUNS checker.concerns(0)  // a launch, and not what is done when the library is loaded

extern "C" {

void __ubsan_handle_shift_out_of_bounds(const ShiftData* data, uintptr_t, uintptr_t count) {
  if (ANYMPS_RUNS) checker.event(anymps_check::Shift, number(data->right, count), ANYMPS_CALLER, data->left->name);
}
void __ubsan_handle_divrem_overflow(const void*, uintptr_t, uintptr_t) {
  if (ANYMPS_RUNS) checker.event(anymps_check::Division, 0, ANYMPS_CALLER);
}
void __ubsan_handle_out_of_bounds(const IndexData* data, uintptr_t index) {
  if (ANYMPS_RUNS) checker.event(anymps_check::Index, number(data->index, index), ANYMPS_CALLER, data->array->name);
}
void __ubsan_handle_type_mismatch_v1(const MismatchData* data, uintptr_t address) {
  const uintptr_t alignment = uintptr_t(1) << data->alignment;
  if (!checker.concerns(address) || address < alignment || address % alignment == 0) return;  // null is told when it is read
  checker.misaligned(address, static_cast<unsigned>(alignment), ANYMPS_CALLER, data->type->name);
}
}
