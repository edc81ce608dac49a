// What is known of an operator by its position in the calls of modules: its signature and its line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace anymps {

// In the order in which they came first, as a loop comes by them in the same order again: the next one lies beside the last one
// in memory. A table of open addressing finds the others. Grows, never forgets. Keys are already well mixed.
class KnownPositions {
 public:
  struct Known {
    uint64_t key;
    uint32_t signature;
    uint32_t site;
  };
  size_t size() const {
    return known_.size();
  }
  const Known* find(uint64_t key) {  // nullptr: not known
    if (next_ >= known_.size() || known_[next_].key != key) {
      next_ = table_[place(key)];
      if (next_ == 0) {
        return nullptr;
      }
      --next_;
    }
    return &known_[next_++];
  }
  void insert(const Known& position) {
    known_.push_back(position);
    next_ = known_.size();
    if (known_.size() * 2 < table_.size()) {
      table_[place(position.key)] = static_cast<uint32_t>(known_.size());
      return;
    }
    table_.assign(table_.size() * 2, 0);
    for (size_t i = 0; i < known_.size(); ++i) {
      table_[place(known_[i].key)] = static_cast<uint32_t>(i + 1);
    }
  }

 private:
  // Where a key is in the table, or may go.
  size_t place(uint64_t key) const {
    const size_t mask = table_.size() - 1;
    size_t i = key & mask;
    while (table_[i] != 0 && known_[table_[i] - 1].key != key) {
      i = (i + 1) & mask;
    }
    return i;
  }

  std::vector<Known> known_;
  std::vector<uint32_t> table_ = std::vector<uint32_t>(1024);  // places in `known_`, from 1 on; 0: none
  size_t next_ = 0;
};

}  // namespace anymps
