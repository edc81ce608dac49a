// The allocator's books for this process: the heap model, set up at its first use from the Mac and the environment.
#pragma once

#include "model/model.h"
#include "rules/rules.h"

#include <utility>

namespace anymps {

class Books {
 public:
  // Facts of the chosen Mac; the watermark variables are read when the first allocation or question comes, as the real
  // allocator's constructor does.
  void describe(int torch_minor, uint64_t recommended_max, uint64_t max_buffer);

  // Like HeapModel's, with its exceptions as torch errors. `nbytes` > 0.
  Block* allocate(size_t nbytes);
  void release(Block* block) noexcept;

  // The configured model. Raises torch's RuntimeError for an invalid watermark, at each use, as the real one does.
  HeapModel& model();

  uint64_t recommended_max() const {
    return config_.recommended_max;
  }
  uint64_t max_buffer() const {
    return config_.max_buffer;
  }

 private:
  void configure();

  HeapConfig config_;
  HeapModel model_;
  bool ready_ = false;
};

Books& books();

}  // namespace anymps

// Results that the Mac has no room for: refused when the CPU's kernel asks for their memory, not once they are computed.
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
