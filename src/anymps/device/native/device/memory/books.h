// The allocator's books for this process: the heap model, set up at its first use from the Mac and the environment.
#pragma once

#include "model/model.h"

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
