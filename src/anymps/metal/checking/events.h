// What the checker has to tell: one event for each kind and place in the kernel's code, with how often and the first case.
#pragma once

#include <cstdint>
#include <vector>

namespace anymps_check {

// The numbers are those of _events.py.
enum Kind {
  Outside = 0,      // of a buffer, or of threadgroup memory
  Wild = 1,         // of everything
  Race = 2,
  SameValue = 3,    // a race of writes that all wrote the same
  Places = 4,       // a barrier opened with threads at another one
  Missing = 5,      // a barrier opened without threads that had returned
  Uninitialised = 6,
  Shift = 7,
  Division = 8,
  Index = 9,        // outside of an array whose size the source gives
  Lane = 10,        // a lane that is not there was read
  Matrix = 11,      // a matrix whose lanes are not all there
  SimdMissing = 12,  // a barrier of a SIMD group that lanes do not come to
  Narrow = 13,       // a constant that has fewer bytes than its parameter
  Misaligned = 14,   // an address that is no multiple of what its type asks for
  LostAdd = 15,      // an atomic store and an atomic addition with no barrier in between
  PartialSum = 16    // an atomic load and an atomic addition with no barrier in between
};
// Bits: 1 writes, 2 is an atomic; of those, 4 adds to what is there (or takes the larger), 8 is a load or a store alone.
// AtomicRead is the reading half of an atomic that writes.
enum How { Read = 0, Write = 1, AtomicRead = 2, AtomicWrite = 3, AtomicAdd = 7, AtomicLoad = 10, AtomicStore = 11 };

constexpr unsigned kFrames = 12;
constexpr unsigned kMostEvents = 256;

// Read by Python: `Event` of _events.py.
struct Event {
  int kind;
  int how;
  unsigned size;          // bytes of the access
  int area;               // what was accessed; -1: nothing known
  int64_t offset;         // in bytes, from the start of the area
  int64_t value;          // a shift's count, an index, a lane, a number of threads
  unsigned thread[3];     // in the grid
  unsigned group[3];
  unsigned other[3];      // the other thread of a race or of a barrier
  int other_how;
  uint64_t count;
  uint64_t other_pc;      // as an offset in the library
  uint64_t pcs[kFrames];  // of the access and its callers, as offsets in the library; the unused ones are 0
  char text[64];          // a type
};

class Events {
 public:
  void clear() { all_.clear(); }
  const std::vector<Event>& all() const { return all_; }
  uint64_t added() const { return added_; }  // how often something was found, in this launch and before

  // Counts the event, or keeps it if it is the first at its place. What comes after too many of them is lost.
  void add(const Event& event) {
    ++added_;
    for (Event& known : all_) {
      if (known.kind == event.kind && known.pcs[0] == event.pcs[0] && known.other_pc == event.other_pc) {
        known.count += event.count;
        return;
      }
    }
    if (all_.size() < kMostEvents) all_.push_back(event);
  }

 private:
  std::vector<Event> all_;
  uint64_t added_ = 0;
};

}  // namespace anymps_check
