// Who touched which byte since the last barrier: two threads of a group, one of them writing, are a race.
//
// Time is counted in barriers. A barrier puts everything before it in order, for the memory that its flags name; a
// simdgroup_barrier does so among the threads of its SIMD group.
#pragma once

#include <cstdint>
#include <vector>

namespace anymps_check {

// One access of one byte; time 0: none.
struct Touch {
  uint32_t time = 0;
  uint16_t thread = 0;
  uint16_t how = 0;
  uint32_t pc = 0;  // offset in the library
};

// When the memory of one kind, device or threadgroup, was put in order.
struct Order {
  uint32_t group = 0;
  uint32_t simd[32] = {};
};

class Races {
 public:
  static constexpr unsigned kBytes = 4;

  // Where threadgroup memory lies, whose words have a place each.
  void begin(const void* shared, size_t bytes) {
    shared_ = reinterpret_cast<uintptr_t>(shared);
    places_.resize((bytes + kBytes - 1) / kBytes);
  }
  void new_group() {
    now_ = 1;
    orders_[0] = orders_[1] = Order();
    ++generation_;
    used_ = 0;
  }
  void barrier(bool device, bool threadgroup) {
    ++now_;
    if (device) orders_[0].group = now_;
    if (threadgroup) orders_[1].group = now_;
  }
  void simd_barrier(unsigned simdgroup, bool device, bool threadgroup) {
    ++now_;
    if (device) orders_[0].simd[simdgroup] = now_;
    if (threadgroup) orders_[1].simd[simdgroup] = now_;
  }

  // Notes an access and gives the first one that it races with; one of time 0 if there is none. `by_write_only`:
  // whether all that it races with are plain writes, and it is one itself.
  Touch touch(uintptr_t address, unsigned size, bool shared, unsigned thread, unsigned how, uint32_t pc, bool& by_write_only) {
    const Order& order = orders_[shared ? 1 : 0];
    const Touch mine{now_, static_cast<uint16_t>(thread), static_cast<uint16_t>(how), pc};
    Touch found;
    by_write_only = how == 1;
    for (unsigned i = 0; i < size;) {
      const uintptr_t at = address + i;
      Word* const word = shared ? place_of(at) : find(at / kBytes);
      if (word == nullptr) return found;
      if (at % kBytes == 0 && size - i >= kBytes && !word->split) {  // the common case: one look for all four
        touch(word->bytes[0], mine, order, found, by_write_only);
        i += kBytes;
        continue;
      }
      if (!word->split) {
        word->split = true;
        for (unsigned other = 1; other < kBytes; ++other) word->bytes[other] = word->bytes[0];
      }
      do {
        touch(word->bytes[(address + i) % kBytes], mine, order, found, by_write_only);
        ++i;
      } while (i < size && (address + i) % kBytes != 0);
    }
    return found;
  }

 private:
  struct Byte {
    Touch write, reads[2];
  };
  struct Word {
    uintptr_t key = 0;
    uint32_t generation = 0;
    bool split = false;  // else the first of the bytes stands for all
    Byte bytes[kBytes];
  };
  static constexpr size_t kMost = size_t(1) << 18;  // words that one group may touch; those beyond are not watched

  static void touch(Byte& byte, const Touch& mine, const Order& order, Touch& found, bool& by_write_only) {
    meet(byte.write, mine, order, found, by_write_only);
    if ((mine.how & 1u) != 0) {
      meet(byte.reads[0], mine, order, found, by_write_only);
      meet(byte.reads[1], mine, order, found, by_write_only);
      byte.write = mine;
    } else {
      keep(byte, mine, order);
    }
  }
  static bool ordered(const Touch& earlier, const Touch& mine, const Order& order) {
    return earlier.time == 0 || earlier.thread == mine.thread || earlier.time < order.group ||
        (earlier.thread / 32 == mine.thread / 32 && earlier.time < order.simd[mine.thread / 32]);
  }
  static void meet(const Touch& earlier, const Touch& mine, const Order& order, Touch& found, bool& by_write_only) {
    if (ordered(earlier, mine, order) || ((earlier.how & 2u) != 0 && (mine.how & 2u) != 0)) return;
    if (earlier.how != 1) by_write_only = false;
    if (found.time == 0) found = earlier;
  }
  // Of those who read, two of different SIMD groups are enough: whoever writes races with one of them.
  static void keep(Byte& byte, const Touch& mine, const Order& order) {
    Touch* const reads = byte.reads;
    for (unsigned i = 0; i < 2; ++i) {
      if (reads[i].time == 0 || reads[i].thread == mine.thread || reads[i].time < order.group) {
        reads[i] = mine;
        return;
      }
    }
    if (reads[0].thread / 32 == reads[1].thread / 32 || (mine.how & 2u) < (reads[1].how & 2u)) reads[1] = mine;
  }

  Word* place_of(uintptr_t address) {
    Word& word = places_[(address - shared_) / kBytes];
    if (word.generation != generation_) begin(word, 0);
    return &word;
  }
  void begin(Word& word, uintptr_t key) const {
    word.key = key;
    word.generation = generation_;
    word.split = false;
    word.bytes[0] = Byte();
  }
  Word* find(uintptr_t key) {
    if (used_ * 2 >= table_.size()) {
      if (used_ >= kMost) return known(key);
      grow();
    }
    for (size_t i = place(key);; i = (i + 1) & (table_.size() - 1)) {
      Word& word = table_[i];
      if (word.generation != generation_) {
        begin(word, key);
        ++used_;
        return &word;
      }
      if (word.key == key) return &word;
    }
  }
  Word* known(uintptr_t key) {
    for (size_t i = place(key);; i = (i + 1) & (table_.size() - 1)) {
      if (table_[i].generation != generation_) return nullptr;
      if (table_[i].key == key) return &table_[i];
    }
  }
  size_t place(uintptr_t key) const { return (key * 0x9e3779b97f4a7c15ull >> 32) & (table_.size() - 1); }
  void grow() {
    std::vector<Word> old(table_.empty() ? 4096 : table_.size() * 2);
    old.swap(table_);
    for (Word& word : old) {
      if (word.generation != generation_) continue;
      size_t i = place(word.key);
      while (table_[i].generation == generation_) i = (i + 1) & (table_.size() - 1);
      table_[i] = word;
    }
  }

  Order orders_[2];  // of device memory, of threadgroup memory
  uint32_t now_ = 1;
  uint32_t generation_ = 1;
  size_t used_ = 0;
  std::vector<Word> table_;
  std::vector<Word> places_;  // of threadgroup memory
  uintptr_t shared_ = 0;
};

}  // namespace anymps_check
