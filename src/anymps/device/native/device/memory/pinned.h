// Pinned memory: CPU tensors whose bytes are a buffer of the device.
#pragma once

#include <c10/core/Allocator.h>

namespace anymps {

// What `pin_memory=True` allocates with. Up to torch 2.13 the device's own allocator, whose memory torch then refuses for
// a CPU tensor (pytorch issue 86060); from 2.14 on CPU memory that counts among the device's.
c10::Allocator* pinned_allocator();

// Whether pinned memory begins here.
bool is_pinned(const void* data);

// Registers what `torch.accelerator.empty_host_cache()` asks for. A Mac registers nothing: up to torch 2.14 the call then
// goes through a null pointer (at::accelerator::emptyHostCache), from 2.15 on it does nothing.
void install_host_cache();

}  // namespace anymps
