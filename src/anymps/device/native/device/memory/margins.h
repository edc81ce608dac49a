// Empty memory around the buffers that shaders write: what goes beside a buffer lands there, and is seen after the launch.
//
// A buffer never moves, as others may hold its address. One that was made without margins, by a CPU kernel or before any shader,
// lends its bytes to a copy that has them, for each launch.
#pragma once

#include "device/memory/memory.h"

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>

#include <optional>
#include <vector>

namespace anymps::margins {

// A group has at most 1,024 threads: one too many of them, with an element of 4 bytes each, stays within the least margin.
constexpr size_t kBefore = 256, kLeastBehind = size_t(4) << 10;

struct Stray {
  int64_t offset;  // of the first byte, from the start of the buffer
  size_t count, nbytes;
};
// Marks the margins of a piece of memory: `kBefore` bytes before its start, and so many behind it.
void mark_around(char* start, size_t nbytes, size_t behind);
// What has changed in them since; they are as before afterwards.
std::optional<Stray> stray_beside(char* start, size_t nbytes, size_t behind);

// From now on new buffers get margins, small ones too. Before that, and where no shader runs, those cost nothing.
void begin();

// Memory for a buffer, with margins if it is to have them; `placement` says where it lies.
at::DataPtr allocate(size_t nbytes, Placement& placement);

// What one launch sees in place of a buffer.
struct Copy {
  c10::Storage storage;
  char* bytes = nullptr;  // where the buffer lies
  Placement placement;    // and where the copy does
  at::DataPtr memory;
  at::DataPtr before;  // the same bytes, which the launch does not see
};

// Marks the margins of a tensor's buffer, or of a copy of it that joins the others.
void guard(const at::Tensor& tensor, std::vector<Copy>& copies);

// What was written beside the buffer of a tensor that `guard` has seen; the margins are as before afterwards.
std::optional<Stray> stray(const at::Tensor& tensor, std::vector<Copy>& copies);

// Writes into the buffers what a launch has changed in their copies: what others have written there meanwhile stays.
void carry_back(const std::vector<Copy>& copies);

}  // namespace anymps::margins

// Marked memory around everything on the host, while PyTorch's own kernels compute: what one stores beside a buffer is seen.
namespace anymps::canaries {

// From now on what torch allocates on the host has such memory on both sides.
void begin();

// What was stored beside the buffer that begins at this address; its margins are as before afterwards. Nothing for memory that
// is older than `begin`, or another's.
std::optional<margins::Stray> stray(const void* start);

}  // namespace anymps::canaries
