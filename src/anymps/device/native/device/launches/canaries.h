// Marked memory around everything on the host, while PyTorch's own kernels compute: what one stores beside a buffer is seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace anymps::canaries {

// From now on what torch allocates on the host has such memory on both sides.
void begin();

struct Stray {
  int64_t offset;  // of the first byte, from the start of the buffer
  size_t count, nbytes;
};
// What was stored beside the buffer that begins at this address; its margins are as before afterwards. Nothing for memory that
// is older than `begin`, or another's.
std::optional<Stray> stray(const void* start);

}  // namespace anymps::canaries
