// The Mac's Philox stream drawn on a GPU, for what it can draw bit for bit: no number of it goes through a library's logarithm
// or cosine, which round differently on each machine.
#pragma once

#include "model/model.h"

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace anymps {

// What `fill_uniform`, `fill_bernoulli` or `fill_random_int` of the model would draw, with their arguments.
struct GpuDraw {
  enum class Kind : uint8_t { Uniform, Bernoulli, Integers };

  static GpuDraw uniform(double from, double to) {
    return {Kind::Uniform, from, to, 0, 0};
  }
  static GpuDraw bernoulli(double p) {
    return {Kind::Bernoulli, p, 0, 0, 0};
  }
  static GpuDraw integers(int64_t base, uint64_t range) {
    return {Kind::Integers, 0, 0, base, range};
  }

  Kind kind;
  double first, second;
  int64_t base;
  uint64_t range;
};

// Draws into `target`, contiguous on a GPU, and moves the state on as the model does. False, and nothing is done: the host is to
// draw, as this element type, size or range is not for the GPU, or its compiler is not to be had.
bool draw_on_gpu(const GpuDraw& draw, RandomState& state, const at::Tensor& target, ElementType type, int release);

}  // namespace anymps
