// Tensors that go to the CPU and come back to mps: which copy took them there, and what became of them meanwhile. And CPU tensors
// that are copied to mps at the same line in step after step, with nothing changed in them.
//
// A copy to the CPU is remembered by the memory that it wrote, so that a view of it or a numpy array over it is known
// again when it is copied to mps. What operators make of it is followed too, for the next few dozen operators.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace anymps::roundtrip {

// After a copy to the CPU. Does nothing unless a full recording runs, in a backward, and inside another call.
void left(const at::Tensor& host);

// After a copy of a CPU tensor to mps: a mark on the tape if it had come from there.
void returned(const at::Tensor& host);

void recording_starts();
void recording_ends();

}  // namespace anymps::roundtrip

namespace anymps::repeats {

// After a copy of `source` to mps at line `site`: true once, in the third step that copies the very same values there.
bool is_third(const at::Tensor& source, uint32_t site);

void forget_all();

}  // namespace anymps::repeats
