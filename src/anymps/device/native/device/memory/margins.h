// Empty memory around the buffers that shaders write: what goes beside a buffer lands there, and is seen after the launch.
#pragma once

#include "device/memory/room.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <optional>

namespace anymps::margins {

// From now on new buffers get margins. Before that, and where no shader runs, they cost nothing.
void begin();

// Memory for a buffer, with margins if they have begun; `room` says where it lies.
at::DataPtr allocate(size_t nbytes, Room& room);

// A launch begins or ends. Memory that a buffer is moved from while one runs is kept until none does.
void begin_launch();
void end_launch();

// Gives the buffer of a tensor margins if it has none, which moves its bytes once, and marks them.
void guard(const at::Tensor& tensor);

struct Stray {
  int64_t offset;  // of the first byte, from the start of the buffer
  size_t count, nbytes;
};
// What was written beside the buffer of a tensor that `guard` has seen; the margins are as before afterwards.
std::optional<Stray> stray(const at::Tensor& tensor);

}  // namespace anymps::margins
