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
  int64_t stray;   // where the first byte lies that was written beside it, and how many lie from there to the last one
  uint64_t strays;
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
  const Area& area(unsigned index) const { return areas_[index]; }
  // Says what was written close beside each area; of groups that are not checked nothing else does.
  void find_strays(Area* areas) const {
    constexpr int64_t before = 256, behind = 4096;
    for (size_t i = 0; i < areas_.size(); ++i) {
      const char* const start = areas_[i].start;
      const auto bytes = static_cast<int64_t>(areas_[i].bytes);
      int64_t first = -before, last = bytes + behind - 1;
      const auto is_free = [&](int64_t at) { return (at >= 0 && at < bytes) || start[at] == 0; };
      while (first <= last && is_free(first)) first = first == -1 ? bytes : first + 1;
      while (last > first && is_free(last)) last = last == bytes ? -1 : last - 1;
      areas[i].stray = first;
      areas[i].strays = static_cast<uint64_t>(last - first + 1);
    }
  }

  // The area next to an address within the arena.
  unsigned find(uintptr_t address) const { return of_piece_[(address - reinterpret_cast<uintptr_t>(memory_)) >> piece_]; }

 private:
  bool map(uint64_t zone) {
    of_piece_.clear();
    for (unsigned i = 0; i < areas_.size(); ++i) {
      of_piece_.resize(of_piece_.size() + 2 + (areas_[i].bytes + zone - 1) / zone, i);
    }
    const uint64_t size = of_piece_.size() * zone;
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return false;
    memory_ = memory;
    size_ = size;
    piece_ = static_cast<unsigned>(__builtin_ctzll(zone));
    for (size_t piece = of_piece_.size(); piece-- > 0;) {  // the first piece of each is the last one seen
      areas_[of_piece_[piece]].start = static_cast<char*>(memory) + (piece + 1) * zone;
    }
    return true;
  }

  std::vector<Area> areas_;
  std::vector<uint32_t> of_piece_;  // the area of each piece of the arena; all are as large as a zone
  unsigned piece_ = 0;              // the logarithm of that
  void* memory_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace anymps_check
