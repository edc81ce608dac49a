// Where checked kernels find their buffers: copies of them, each amid empty memory that swallows what goes beside.
//
// So an access outside of a buffer reads zeros and writes nothing that anybody reads. What differs in the end is copied back:
// not each store of a kernel is one that the compiler tells of.
#pragma once

#include <cstdint>
#include <cstring>
#include <sys/mman.h>
#include <vector>

namespace anymps_check {

// Filled by Python: `Area` of _events.py.
struct Area {
  void* host;      // what is copied in; null: nothing is, as for threadgroup memory
  uint64_t bytes;
  char* start;     // of the copy
  uint64_t fixed;  // whether the kernel only reads it, by the types of its parameters
};

class Arena {
 public:
  // Gives each area its place, and copies it in. False if there is no memory for that.
  bool open(Area* areas, unsigned count) {
    areas_.assign(areas, areas + count);
    for (uint64_t zone = uint64_t(256) << 20; zone >= (uint64_t(1) << 20); zone /= 4) {
      if (map(zone)) {
        for (unsigned i = 0; i < count; ++i) {
          if (areas_[i].host != nullptr) std::memcpy(areas_[i].start, areas_[i].host, areas_[i].bytes);
          areas[i].start = areas_[i].start;
        }
        return true;
      }
    }
    return false;
  }
  void close(bool copy_back) {
    if (memory_ == nullptr) return;
    for (const Area& area : areas_) {
      if (copy_back && area.host != nullptr && area.bytes != 0 && std::memcmp(area.host, area.start, area.bytes) != 0) {
        std::memcpy(area.host, area.start, area.bytes);
      }
    }
    munmap(memory_, size_);
    memory_ = nullptr;
    size_ = 0;
  }
  bool has(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(memory_) < size_; }
  Area& area(unsigned index) { return areas_[index]; }

  // The area next to an address within the arena.
  unsigned find(uintptr_t address) {
    const auto at = [&](unsigned i) { return address - low_[i] < low_[i + 1] - low_[i]; };
    if (at(last_)) return last_;
    unsigned from = 0, to = static_cast<unsigned>(areas_.size());
    while (to - from > 1) {
      const unsigned middle = (from + to) / 2;
      (low_[middle] <= address ? from : to) = middle;
    }
    return last_ = from;
  }

 private:
  static constexpr uint64_t kPage = 4096;

  bool map(uint64_t zone) {
    uint64_t size = 0;
    low_.clear();
    for (const Area& area : areas_) {
      low_.push_back(size);
      size += 2 * zone + (area.bytes + kPage - 1) / kPage * kPage;
    }
    low_.push_back(size);
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    memory_ = memory;
    size_ = size;
    last_ = 0;
    for (unsigned i = 0; i < low_.size(); ++i) low_[i] += reinterpret_cast<uintptr_t>(memory);
    for (unsigned i = 0; i < areas_.size(); ++i) areas_[i].start = reinterpret_cast<char*>(low_[i]) + zone;
    return true;
  }

  std::vector<Area> areas_;
  std::vector<uintptr_t> low_;  // where each area's zone begins, and the end of all
  void* memory_ = nullptr;
  uint64_t size_ = 0;
  unsigned last_ = 0;
};

}  // namespace anymps_check
