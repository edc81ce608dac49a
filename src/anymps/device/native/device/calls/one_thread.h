// Small work of the CPU on the calling thread alone: the threads of OpenMP and MKL spin while they wait for each other, so
// that on a busy machine they take ten times as long, and the threads' clocks count that as work.
#pragma once

#include <cstdint>

namespace anymps {

// Elements of the largest tensor up to which work is small: a matrix of 512 x 512. Its decompositions gain little from
// threads (svdvals 25 ms, eigvalsh 9 ms on one core of an AMD EPYC with torch 2.13), and torch's own kernels take a
// millisecond. By size, never by time, as results may differ in their last bits with the number of threads.
constexpr int64_t kSmallWork = int64_t{1} << 18;

// Elements up to which a call that mps computes is small: of all its tensors, and of the shape that they broadcast to. So
// many torch gives one thread of an elementwise kernel (at::internal::GRAIN_SIZE).
constexpr int64_t kSmallCall = int64_t{1} << 15;

// Products and convolutions split far below, where threads gain next to nothing: of these multiplications a second core of an
// Intel Xeon takes off 10 us (of 31, for 128 x 128 x 128) and 60 us (of 500, for a convolution's gradients).
constexpr int64_t kSmallProduct = int64_t{1} << 21;
constexpr int64_t kSmallConvolution = int64_t{1} << 22;

// A product may be of more elements, as few rows have few multiplications for a large matrix (1 x 128 to 384: 8 us on one
// core, and on two; 1 x 256 to 512: 14 and 10 us).
constexpr int64_t kSmallFactors = int64_t{1} << 17;
constexpr int64_t kSmallProductOfMany = int64_t{1} << 19;

// Whether work of the calling thread may be split among others. Costs a read of a thread's own number.
bool has_several_threads();

// While it lives, what the calling thread computes is not split among others. It leaves other threads alone, as
// at::set_num_threads does not: that number is also the one with which threads begin.
class OneThread {
 public:
  explicit OneThread(bool wanted) {
    if (wanted) {
      begin();
    }
  }
  ~OneThread() {
    if (openmp_ > 0) {
      end();
    }
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  void begin();
  void end();
  int openmp_ = 0;  // threads before; 0: not changed
  int mkl_ = -1;    // MKL's own number for this thread before, 0 where it had none; -1: not changed
};

}  // namespace anymps
