// Results that the Mac has no room for: refused when the CPU's kernel asks for their memory, not once they are computed.
#pragma once

#include "rules/rules.h"

#include <utility>

namespace anymps::host_results {

// Has large allocations on the CPU looked at, from now on.
void watch();

inline thread_local const Rule* made_by = nullptr;

// While it lives, the calling thread is in a CPU kernel of this operator, or in none.
class Making {
 public:
  explicit Making(const Rule* rule) : made_by_(made_by), before_(std::exchange(made_by_, rule)) {}
  ~Making() {
    made_by_ = before_;
  }
  Making(const Making&) = delete;
  Making& operator=(const Making&) = delete;

 private:
  const Rule*& made_by_;  // the thread's
  const Rule* const before_;
};

}  // namespace anymps::host_results
