// Which module and line a forward operator belonged to, by the autograd node that it made: for what the node runs later.
#pragma once

#include <cstdint>

namespace anymps::forward_lines {

struct Place {
  uint32_t module = 0, site = 0;
};

// The place of the forward operator of a node, by the thread that made the node and its number; nothing known: zeros.
Place find(uint64_t thread, uint64_t sequence);

// Whether the node's operator is known; the first operator under a node is the node's own.
bool knows(uint64_t thread, uint64_t sequence);
void remember(uint64_t thread, uint64_t sequence, Place place);

}  // namespace anymps::forward_lines
