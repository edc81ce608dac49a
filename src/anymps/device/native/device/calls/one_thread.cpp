// The libraries are torch's own, and what it was built with differs: their functions are looked up by name.
#include "device/calls/one_thread.h"

#include <dlfcn.h>

namespace anymps {
namespace {

struct ThreadNumbers {
  int (*openmp)() = nullptr;
  void (*set_openmp)(int) = nullptr;
  int (*set_mkl)(int) = nullptr;  // gives the number before
};

const ThreadNumbers& thread_numbers() {
  static const ThreadNumbers found = [] {
    ThreadNumbers numbers;
    numbers.openmp = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "omp_get_max_threads"));
    numbers.set_openmp = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
    numbers.set_mkl = reinterpret_cast<int (*)(int)>(dlsym(RTLD_DEFAULT, "MKL_Set_Num_Threads_Local"));
    return numbers;
  }();
  return found;
}

}  // namespace

bool has_several_threads() {
  const ThreadNumbers& numbers = thread_numbers();
  return numbers.openmp != nullptr && numbers.openmp() > 1;
}

void OneThread::begin() {
  const ThreadNumbers& numbers = thread_numbers();
  if (numbers.openmp == nullptr || numbers.set_openmp == nullptr) {
    return;
  }
  openmp_ = numbers.openmp();
  numbers.set_openmp(1);
  if (numbers.set_mkl != nullptr) {
    mkl_ = numbers.set_mkl(1);
  }
}

void OneThread::end() {
  thread_numbers().set_openmp(openmp_);
  if (mkl_ >= 0) {
    thread_numbers().set_mkl(mkl_);
  }
}

}  // namespace anymps
