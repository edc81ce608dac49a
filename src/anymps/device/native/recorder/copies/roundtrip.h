// Tensors that go to the CPU and come back to mps: which copy took them there, and what became of them meanwhile.
//
// A copy to the CPU is remembered by the memory that it wrote, so that a view of it or a numpy array over it is known
// again when it is copied to mps. What operators make of it is followed too, for the next few dozen operators.
#pragma once

#include <ATen/core/Tensor.h>

namespace anymps::roundtrip {

// Of the bytes at the beginning, in the middle and at the end, which tell a change.
size_t hash_of(const c10::StorageImpl& storage);

// After a copy to the CPU. Does nothing unless a full recording runs, in a backward, and inside another call.
void left(const at::Tensor& host);

// After a copy of a CPU tensor to mps: a mark on the tape if it had come from there.
void returned(const at::Tensor& host);

void recording_starts();
void recording_ends();

}  // namespace anymps::roundtrip
