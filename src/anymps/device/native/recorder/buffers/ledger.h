// The ledger: for every buffer, when it was born and died, who made it, and how full the allocator was. Recording only.
#pragma once

#include "recorder/tape/entry.h"

#include <cstdint>
#include <string>

namespace anymps {
namespace ledger {

// The packed form documented in docs/architecture/recording-file.md.
struct Row {
  uint64_t id;          // from 1
  uint64_t born, died;  // events: births and deaths are counted together, from 1; died 0: not before the recording ended,
                        // born 0: before it began
  int64_t born_ns, died_ns;
  uint64_t bytes;      // what the allocator charges
  uint64_t requested;  // what was asked for
  uint64_t allocated;  // by all buffers, just after the birth
  uint64_t reserved;   // in heaps, just after the birth
  uint32_t signature, module, site;  // of the entry that made it; `module` of a parameter is the one that holds it
  uint32_t step, died_step;
  uint8_t phase, died_phase;
  uint8_t role;  // Role
  uint8_t reserved_byte;
};
static_assert(sizeof(Row) == 96, "the packed row is part of the recording's documented format");

struct Size {
  uint64_t charged;    // by the allocator
  uint64_t requested;
};

// Whether buffers that are born now get a row.
bool is_kept();

// The row of a new buffer, 0 while nothing records; how much all buffers and all heaps hold just after.
uint32_t born(const Size& size, uint64_t allocated, uint64_t reserved);
void died(uint32_t row) noexcept;

// What the calling thread's buffers since its last entry were made by.
void attribute(const Entry& entry);

// A bare allocation (torch.empty) writes no entry; `entry` says where it was made. The next entry takes its buffer over
// only if it comes from the same line: an operator that torch composes of an allocation and a kernel that fills it.
bool has_unnamed();
void name(const Entry& entry);

// Says what a live buffer is; begins a row for one that is older than the recording. Returns the row.
uint32_t assign(uint32_t row, const Size& size, Role role, uint32_t module);

// `limit` rows of buffers that died are kept one by one, later ones only counted; with 0 there is no ledger at all.
void start(uint64_t limit);
std::string drain(bool with_living);  // packed rows that ended since the last drain; all of them at the end
uint64_t events();
uint64_t dropped();

}  // namespace ledger
}  // namespace anymps
