// Which calls of a signature are due to be looked at: the first three, then at doubling distances. Needs no torch.
#pragma once

#include "locks/locks.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace anymps::observer {

// Counts calls by signature. At most `kSignatures` are kept, about 2 MiB; later ones share one count each by `family`, so that a
// program whose sizes always change is looked at, too, and fills no memory.
class DueCalls {
 public:
  static constexpr size_t kSignatures = 32768;
  static constexpr uint64_t kFirst = 3;

  bool is_due(uint64_t signature, uint64_t family) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = counts_.find(signature);
    if (found == counts_.end()) {
      if (counts_.size() >= kSignatures) {
        signature = family;
      }
      found = counts_.try_emplace(signature).first;
    }
    Count& count = found->second;
    if (++count.calls < count.next) {
      return false;
    }
    if (count.calls >= kFirst) {
      count.distance *= 2;
    }
    count.next = count.calls + count.distance;
    return true;
  }

  void forget() {
    std::lock_guard<std::mutex> lock(mutex_);
    counts_.clear();
  }

 private:
  struct Count {
    uint64_t calls = 0, next = 1, distance = 1;
  };
  Mutex mutex_;
  std::unordered_map<uint64_t, Count> counts_;
};

}  // namespace anymps::observer
