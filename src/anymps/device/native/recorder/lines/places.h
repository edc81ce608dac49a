// Where in the user's code an entry belongs: the line that runs, and in a backward that of the forward operator.
#pragma once

#include "recorder/lines/autograd.h"
#include "recorder/tape/entry.h"

#include <cstdint>

namespace anymps {

// The place in the user's code that runs; in a backward that of the forward operator, or of the user's own backward.
uint32_t current_place();

namespace places {

// Phase, module and line of an operator that a backward runs: those of its forward one, or a line of the user's backward.
void of_backward(Entry& entry, const BackwardNode& node);

// Whether the operator of a node is known, by the thread that made the node and its number; the first operator under a node is the
// node's own.
bool knows_forward(uint64_t thread, uint64_t sequence);
void keep_forward(uint64_t thread, uint64_t sequence, uint32_t module, uint32_t site);

// A forward operator's module and line, for what its node will run in the backward. `site` is asked only if it is new.
template <class Site>
void remember_forward(uint64_t thread, uint64_t sequence, uint32_t module, const Site& site) {
  if (sequence != 0 && !knows_forward(thread, sequence - 1)) {
    keep_forward(thread, sequence - 1, module, site());
  }
}

}  // namespace places
}  // namespace anymps
