// Lists of tensors whose arithmetic one kernel of a card does: what is asked and told of it.
#pragma once

#include <cstdint>

namespace anymps {
namespace lists {

// Whether lists are computed in one (true at the start), and how many were.
void compute_in_one(bool on);
int64_t computed_in_one();

}  // namespace lists
}  // namespace anymps
