// What is known of an operator by its position in the calls of modules: its signature and its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace anymps {

// Open addressing, grows, never forgets. Keys are already well mixed; key 0 is never stored.
struct KnownPositions {
  struct Slot {
    uint64_t key;
    uint32_t signature;
    uint32_t site;
  };
  std::vector<Slot> slots = std::vector<Slot>(1024, Slot{0, 0, 0});
  size_t used = 0;

  Slot* find(uint64_t key) {
    const size_t mask = slots.size() - 1;
    for (size_t i = key & mask;; i = (i + 1) & mask) {
      if (slots[i].key == key || slots[i].key == 0) {
        return &slots[i];
      }
    }
  }
  void insert(uint64_t key, uint32_t signature, uint32_t site) {
    if (used * 2 >= slots.size()) {
      std::vector<Slot> old(slots.size() * 2, Slot{0, 0, 0});
      old.swap(slots);
      for (const Slot& slot : old) {
        if (slot.key != 0) {
          *find(slot.key) = slot;
        }
      }
    }
    *find(key) = Slot{key, signature, site};
    ++used;
  }
};

}  // namespace anymps
