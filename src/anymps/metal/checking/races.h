// Who touched which byte since the last barrier: two threads of a group, one of them writing, are a race.
//
// Time is counted in barriers, from group to group: a new group puts everything before it in order, so that nothing has
// to be cleared. A barrier does so for the memory that its flags name; a simdgroup_barrier among the threads of its
// SIMD group. Atomics race with plain accesses only. But a store loses what others add beside it, and a load finds a part of
// the sum: such a pair is met, too.
#pragma once

#include <cstdint>
#include <vector>

#include "events.h"

namespace anymps_check {

// One access of one byte; time 0: none.
struct Touch {
  uint32_t time = 0;
  uint16_t thread = 0;
  uint16_t how = 0;
  uint32_t pc = 0;  // offset in the library
};

// When the memory of one kind, device or threadgroup, was put in order. No two barriers have the same time.
struct Order {
  uint32_t group = 1;
  uint32_t simd[32] = {};
};

class __attribute__((visibility("hidden"))) Races {
 public:
  static constexpr unsigned kBytes = 4;

  // Where threadgroup memory lies, whose words have a place each.
  void begin(uintptr_t shared, size_t bytes) {
    shared_ = shared;
    if (places_.size() * kBytes < bytes) places_.resize((bytes + kBytes - 1) / kBytes);
  }
  void new_group() {
    ++moment_;
    if (now_ >= kLast) forget();
    orders_[0].group = orders_[1].group = ++now_;
    ++generation_;
    used_ = 0;
    split_.clear();
    recent_ = Place();
  }
  // Grows at each barrier and each write.
  uint64_t moment() const { return moment_; }
  void barrier(bool device, bool threadgroup) {
    ++moment_;
    ++now_;
    if (device) orders_[0].group = now_;
    if (threadgroup) orders_[1].group = now_;
  }
  void simd_barrier(unsigned simdgroup, bool device, bool threadgroup) {
    ++moment_;
    ++now_;
    if (device) orders_[0].simd[simdgroup] = now_;
    if (threadgroup) orders_[1].simd[simdgroup] = now_;
  }

  // Notes a read of whole words of threadgroup memory that nobody has written since the barrier and somebody has read: there
  // is nothing to find. False if one of them is no such word.
  bool read_again(uint64_t offset, unsigned size, unsigned thread, uint32_t pc) {
    Word* word = &places_[offset / kBytes];
    const Order& order = orders_[1];
    for (const Word* const end = word + size / kBytes; word != end; ++word) {
      if (word->calm != order.group) return false;
      keep(word->all.reads, Touch{now_, static_cast<uint16_t>(thread), 0, pc}, order);
    }
    return true;
  }

  // Notes an access and gives the first one that it races with; one of time 0 if there is none. `by_write_only`:
  // whether all that it races with are plain writes, and it is one itself.
  // `known`: whether later reads there need no other look.
  Touch touch(
      uintptr_t address, unsigned size, bool shared, bool known, unsigned thread, unsigned how, uint32_t pc, bool& by_write_only) {
    const Order& order = orders_[shared ? 1 : 0];
    const Touch mine{now_, static_cast<uint16_t>(thread), static_cast<uint16_t>(how), pc};
    Touch found;
    by_write_only = how == Write;
    moment_ += how & 1u;
    if (how == AtomicRead) return found;  // its writing half meets whatever this would
    for (unsigned i = 0; i < size;) {
      const uintptr_t at = address + i;
      Word* const word = shared ? &places_[(at - shared_) / kBytes] : find(at / kBytes);
      if (word == nullptr) return found;
      const bool old = word->last < order.group;  // all that was noted is in order with all that comes
      if (old) word->split = 0;
      word->last = now_;
      if (at % kBytes == 0 && size - i >= kBytes && word->split == 0) {  // the common case: one look for all four
        if (!old) {
          touch(word->all, mine, order, found, by_write_only);
        } else {
          slot(word->all, how) = mine;
        }
        const bool unwritten = word->all.write.time < order.group && word->all.changes[0].time < order.group;
        word->calm = known && (how & 1u) == 0 && unwritten ? order.group : 0;
        i += kBytes;
        continue;
      }
      word->calm = 0;
      if (word->split == 0) {
        split_.push_back({{word->all, word->all, word->all, word->all}});
        word->split = static_cast<uint32_t>(split_.size());
      }
      do {
        touch(split_[word->split - 1].bytes[(address + i) % kBytes], mine, order, found, by_write_only);
        ++i;
      } while (i < size && (address + i) % kBytes != 0);
    }
    return found;
  }

 private:
  struct Byte {
    Touch write;               // the last store, plain or atomic
    Touch changes[2];          // atomics that read and write
    Touch reads[2];
  };
  struct Word {
    uint32_t last = 0;   // when it was touched
    uint32_t calm = 0;   // since that barrier it was read, and not written
    uint32_t split = 0;  // from 1 on: where its bytes lie, each for itself
    Byte all;            // else this stands for all
  };
  struct Split {
    Byte bytes[kBytes];
  };
  // Neighbouring words of device memory lie together. What a block held before is in order, as all that is old.
  static constexpr unsigned kWords = 8;
  struct Block {
    Word words[kWords];
  };
  struct Place {
    uintptr_t key = ~uintptr_t(0);
    uint32_t generation = 0;
    uint32_t block = 0;
  };
  static constexpr size_t kMost = size_t(1) << 18;  // blocks that one group may touch; words beyond are not watched
  static constexpr uint32_t kLast = uint32_t(1) << 31;

  static bool is_change(unsigned how) { return (how & 11u) == 3; }
  static Touch& slot(Byte& byte, unsigned how) {
    return (how & 1u) == 0 ? byte.reads[0] : is_change(how) ? byte.changes[0] : byte.write;
  }
  static void touch(Byte& byte, const Touch& mine, const Order& order, Touch& found, bool& by_write_only) {
    meet(byte.write, mine, order, found, by_write_only);
    for (const Touch& change : byte.changes) meet(change, mine, order, found, by_write_only);
    if ((mine.how & 1u) == 0) {
      keep(byte.reads, mine, order);
      return;
    }
    for (const Touch& read : byte.reads) meet(read, mine, order, found, by_write_only);
    if (is_change(mine.how)) {
      keep(byte.changes, mine, order);
    } else if (!covers(byte.write, mine, order)) {
      byte.write = mine;
    }
  }
  static bool ordered(const Touch& earlier, const Touch& mine, const Order& order) {
    return earlier.time < order.group || earlier.thread == mine.thread ||
        (earlier.thread / 32 == mine.thread / 32 && earlier.time < order.simd[mine.thread / 32]);
  }
  static bool adds_beside(unsigned one, unsigned other) { return (one & 4u) != 0 && (other & 8u) != 0; }
  static void meet(const Touch& earlier, const Touch& mine, const Order& order, Touch& found, bool& by_write_only) {
    if (ordered(earlier, mine, order)) return;
    if ((earlier.how & mine.how & 2u) != 0 && !adds_beside(earlier.how, mine.how) && !adds_beside(mine.how, earlier.how)) return;
    if (earlier.how != Write) by_write_only = false;
    if (found.time == 0) found = earlier;
  }
  // Whether what a thread did before meets all that its atomic would: it was plain, and nothing has put it in order since.
  static bool covers(const Touch& earlier, const Touch& mine, const Order& order) {
    return earlier.thread == mine.thread && earlier.time >= order.group && (earlier.how & 2u) < (mine.how & 2u);
  }
  // Of those who did the same, two of different SIMD groups are enough: whoever comes races with one of them.
  static void keep(Touch (&kept)[2], const Touch& mine, const Order& order) {
    for (Touch& one : kept) {
      if (covers(one, mine, order)) return;
      if (one.thread == mine.thread || one.time < order.group) {
        one = mine;
        return;
      }
    }
    if (kept[0].thread / 32 == kept[1].thread / 32 || (mine.how & 2u) < (kept[1].how & 2u)) kept[1] = mine;
  }

  Word* find(uintptr_t key) {
    const uintptr_t of_block = key / kWords;
    if (recent_.key != of_block && !find_block(of_block)) return nullptr;
    return &blocks_[recent_.block].words[key % kWords];
  }
  bool find_block(uintptr_t key) {
    if (used_ * 2 >= table_.size() && used_ < kMost) grow();
    for (size_t i = place(key);; i = (i + 1) & (table_.size() - 1)) {
      Place& known = table_[i];
      if (known.generation != generation_) {
        if (used_ >= kMost) return false;
        known = {key, generation_, static_cast<uint32_t>(used_++)};
        if (used_ > blocks_.size()) blocks_.resize(used_ < 64 ? 64 : used_ * 2);
      } else if (known.key != key) {
        continue;
      }
      recent_ = known;
      return true;
    }
  }
  size_t place(uintptr_t key) const { return (key * 0x9e3779b97f4a7c15ull >> 32) & (table_.size() - 1); }
  void grow() {
    std::vector<Place> old(table_.empty() ? 1024 : table_.size() * 2);
    old.swap(table_);
    for (const Place& known : old) {
      if (known.generation != generation_) continue;
      size_t i = place(known.key);
      while (table_[i].generation == generation_) i = (i + 1) & (table_.size() - 1);
      table_[i] = known;
    }
  }
  // Begins as if nothing had been touched.
  void forget() {
    now_ = 1;
    orders_[0] = orders_[1] = Order();
    places_.assign(places_.size(), Word());
    blocks_.clear();
    table_.clear();
    split_.clear();
    used_ = 0;
    recent_ = Place();
  }

  Order orders_[2];  // of device memory, of threadgroup memory
  uint32_t now_ = 1;
  uint64_t moment_ = 0;
  uint32_t generation_ = 1;  // of the places in the table: those of another one are free
  size_t used_ = 0;          // blocks
  Place recent_;
  std::vector<Place> table_;
  std::vector<Block> blocks_;
  std::vector<Split> split_;
  std::vector<Word> places_;  // of threadgroup memory
  uintptr_t shared_ = 0;
};

}  // namespace anymps_check
