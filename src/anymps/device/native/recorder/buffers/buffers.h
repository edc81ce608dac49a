// Births and deaths of buffers on a device that does not tell of them: storages as they are seen in operators' results.
//
// A storage that is seen for the first time gets another owner for its bytes, which notes their end. The bytes stay where they
// are: nobody but who frees them can tell. What the allocator charges is the difference of its counters between two operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include <cstdint>

namespace anymps::buffers {

// A recording begins: counts from what is allocated now.
void start();

// Begins a row for each storage on mps that was not seen before.
void see(c10::ArrayRef<at::Tensor> tensors);

// Says what a storage is (ledger::Role); begins a row for one that is older than the recording.
void assign(c10::StorageImpl* storage, uint8_t role, uint32_t module);

// What owns the bytes: of a storage that was seen, the owner that it had before.
const at::DataPtr& owner(const at::DataPtr& data) noexcept;

// The same for buffers that another copy of this library has seen, by what it frees them with.
at::DeleterFnPtr deleter();
void recognise(at::DeleterFnPtr elsewhere);

uint64_t allocated();  // by all buffers, now
uint64_t peak();       // of the samples since the start or the last reset
void reset_peak();

}  // namespace anymps::buffers
