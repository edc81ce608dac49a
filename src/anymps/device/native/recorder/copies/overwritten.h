// Tensors on mps that a casting copy to the CPU has left with the bytes of another dtype, on a Mac.
//
// The copy itself gives the right values, and most such tensors are dropped right after it. What is wrong is what reads
// one of them later, so only then is there a mark on the tape, with the line of the copy.
#pragma once

#include "rules/rules.h"

#include <c10/core/TensorImpl.h>
#include <c10/util/ArrayRef.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace anymps::overwritten {

extern std::atomic<bool> any;

// Before the copy's own entry is written: `mark` is the mark's name, `site` the copy's line.
void remember(const c10::TensorImpl* source, std::string mark, uint32_t site);

// For each entry that is written, while there are any: the marks, and lines of copies, whose source the call reads.
std::vector<std::pair<std::string, uint32_t>> read_by(const Rule& rule, c10::ArrayRef<const c10::TensorImpl*> inputs);

void forget_all();

}  // namespace anymps::overwritten
