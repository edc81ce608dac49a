// The state of the floating-point unit in which compiled kernels run.
#pragma once

namespace anymps_rt {

inline unsigned long float_state() {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr();
#else
  unsigned long state;
  asm volatile("mrs %0, fpcr" : "=r"(state));
  return state;
#endif
}

inline void set_float_state(unsigned long state) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(static_cast<unsigned>(state));
#else
  asm volatile("msr fpcr, %0" ::"r"(state));
#endif
}

// Has subnormal floats be zero, and returns what was before.
inline unsigned long flush_subnormals() {
  const unsigned long before = float_state();
#if defined(__x86_64__)
  set_float_state(0x9fc0);  // FTZ and DAZ; all exceptions masked
#else
  set_float_state(1ul << 24);
#endif
  return before;
}

}  // namespace anymps_rt
