// Replaying a trace on a heap model of its own.
#include "model/replay.h"

namespace anymps {

Replayed replay(const HeapConfig& config, const std::vector<int64_t>& trace) {
  HeapModel model;
  model.configure(config);
  Replayed result;
  std::vector<Block*> blocks;
  for (size_t i = 0; i < trace.size(); ++i) {
    const int64_t step = trace[i];
    if (step >= 0) {
      try {
        blocks.push_back(step == 0 ? nullptr : model.allocate(static_cast<size_t>(step)));
      } catch (const OutOfMemory& error) {
        result.failed = static_cast<int64_t>(i);
        result.message = error.what();
        break;
      } catch (const InvalidBufferSize& error) {
        result.failed = static_cast<int64_t>(i);
        result.message = error.what();
        break;
      }
      continue;
    }
    const auto place = static_cast<size_t>(-step) - 1;
    if (place >= blocks.size()) {
      throw std::invalid_argument("anymps: the trace frees what it has not allocated");
    }
    model.release(blocks[place]);
    blocks[place] = nullptr;
  }
  result.peak_allocated = model.peak_current();
  result.peak_reserved = model.peak_total();
  return result;
}

}  // namespace anymps
