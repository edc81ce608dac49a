// Marked memory around everything on the host, while PyTorch's own kernels compute: what one stores beside a buffer is seen.
#pragma once

#include "device/memory/margins.h"

#include <optional>

namespace anymps::canaries {

// From now on what torch allocates on the host has such memory on both sides.
void begin();

// What was stored beside the buffer that begins at this address; its margins are as before afterwards. Nothing for memory that
// is older than `begin`, or another's.
std::optional<margins::Stray> stray(const void* start);

}  // namespace anymps::canaries
