// Stacks of fibers, and the switch between them by hand: `swapcontext` would ask the system at each switch.
#include "stacks.h"

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace anymps_rt {

#if defined(__x86_64__)
asm(R"(
.text
.p2align 4
.globl anymps_rt_switch
.hidden anymps_rt_switch
.type anymps_rt_switch,@function
anymps_rt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size anymps_rt_switch,.-anymps_rt_switch
)");
constexpr size_t kSaved = 6;
void* first_frame(char* top, void (*entry)()) {
  auto* words = reinterpret_cast<uintptr_t*>(top) - (kSaved + 2);
  std::memset(words, 0, kSaved * sizeof(uintptr_t));
  words[kSaved] = reinterpret_cast<uintptr_t>(entry);
  words[kSaved + 1] = 0;  // where a return address of `entry` would stand
  return words;
}
#elif defined(__aarch64__)
asm(R"(
.text
.p2align 4
.globl anymps_rt_switch
.hidden anymps_rt_switch
.type anymps_rt_switch,%function
anymps_rt_switch:
  sub sp, sp, #176
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #176
  ret
.size anymps_rt_switch,.-anymps_rt_switch
)");
void* first_frame(char* top, void (*entry)()) {
  auto* words = reinterpret_cast<uintptr_t*>(top) - 22;
  std::memset(words, 0, 22 * sizeof(uintptr_t));
  words[11] = reinterpret_cast<uintptr_t>(entry);  // x30
  return words;
}
#else
#error "anymps runs Metal kernels on x86-64 and aarch64 only"
#endif

Stacks::Stacks(size_t size, unsigned count)
    : page_(static_cast<size_t>(sysconf(_SC_PAGESIZE))), size_((size + page_ - 1) / page_ * page_), count_(count) {}

Stacks::~Stacks() {
  if (memory_ != nullptr) munmap(memory_, count_ * (size_ + page_));
}

char* Stacks::top(unsigned fiber) {
  const size_t stride = size_ + page_;
  if (memory_ == nullptr) {
    void* memory = mmap(nullptr, count_ * stride, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return nullptr;
    memory_ = static_cast<char*>(memory);
  }
  for (; opened_ <= fiber; ++opened_) {
    if (mprotect(memory_ + opened_ * stride + page_, size_, PROT_READ | PROT_WRITE) != 0) return nullptr;
  }
#if defined(__SANITIZE_ADDRESS__)
  // A fiber that was left where it stood has not taken back what AddressSanitizer marks of its frames.
  __asan_unpoison_memory_region(memory_ + fiber * stride + page_, size_);
#endif
  // Not all at the same offset of a page: they would share the same few sets of the cache.
  return memory_ + (fiber + 1) * stride - (fiber * 37 % 61) * 64;
}

}  // namespace anymps_rt
