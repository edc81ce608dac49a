// The checker of Metal kernels: what a kernel does with memory, barriers and SIMD groups, judged while it runs.
//
// The compiler calls the hooks of hooks.cpp before each access; the shim and the launchers call those at the end of this
// file. Nothing here knows how threads are run: that a barrier has opened is seen by who comes back from it first.
#include "checker.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>

using anymps_rt::Resolve;
using anymps_rt::Thread;

extern "C" void anymps_rt_barrier(int);
extern "C" void anymps_rt_simd(void* slot, Resolve resolve, unsigned long site);

namespace anymps_check {

Checker checker;

namespace {

// What threadgroup memory holds that nobody has written: no kernel writes the same by chance.
char unwritten(size_t place) {
  return static_cast<char>((place * 0x9e3779b1u >> 13 & 0x3f) + 0x41);
}

struct Code {
  uintptr_t inside, low, high;
};

int find_code(dl_phdr_info* info, size_t, void* data) {
  Code& code = *static_cast<Code*>(data);
  uintptr_t low = ~uintptr_t(0), high = 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
    const uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    low = std::min(low, start);
    high = std::max(high, start + info->dlpi_phdr[i].p_memsz);
  }
  if (code.inside < low || code.inside >= high) return 0;
  code.low = info->dlpi_addr;
  code.high = high;
  return 1;
}

}  // namespace

int Checker::begin(Area* areas, unsigned count, unsigned shared_area, const void* code) {
  events.clear();
  if (!arena_.open(areas, count)) return 1;
  areas_ = areas;
  Code found{reinterpret_cast<uintptr_t>(code), 0, 0};
  dl_iterate_phdr(find_code, &found);
  code_low_ = found.low;
  code_span_ = found.high - found.low;
  shared_ = shared_area;
  if (pattern_[0] == 0) {
    for (size_t i = 0; i < kMostShared; ++i) pattern_[i] = unwritten(i);
  }
  shared_low_ = reinterpret_cast<uintptr_t>(arena_.area(shared_area).start);
  shared_span_ = arena_.area(shared_area).bytes;
  races_.begin(shared_low_, shared_span_);
  group_ = nullptr;
  same_.pending = false;
  stacks_low_ = 0;
  stacks_span_ = ~uintptr_t(0);
  return 0;
}

void Checker::end() {
  settle();
  stacks_low_ = 0;
  stacks_span_ = ~uintptr_t(0);
  shared_span_ = 0;
  arena_.find_strays(areas_);
  arena_.close(true);
}

void Checker::thread_begins(const Thread& thread) {
  settle();
  const uintptr_t here = reinterpret_cast<uintptr_t>(__builtin_frame_address(0));
  if (group_ == nullptr) {  // the first thread of all
    stacks_low_ = here - kStack;
    stacks_span_ = 2 * kStack;
  } else {  // stacks lie beside each other
    const uintptr_t low = std::min(stacks_low_, here - kStack);
    stacks_span_ = std::max(stacks_low_ + stacks_span_, here + kStack) - low;
    stacks_low_ = low;
  }
  if (thread.index == 0 || group_ == nullptr) {
    races_.new_group();
    const Area& area = arena_.area(shared_);
    std::memset(initialised_, 0, area.bytes);
    std::memcpy(area.start, pattern_, area.bytes);
    opened_ = 0;
    for (unsigned i = 0; i < thread.of->threads; ++i) waiting_[i].calls = 0;
  }
  group_ = thread.of;
  current_ = thread.index;
}

Frames Checker::frames(const Caller& caller) const {
  Frames found{};
  unsigned count = 0;
  const auto add = [&](uintptr_t at) {
    if (!is_code(at)) return false;
    found.pcs[count++] = at - code_low_;
    return count < kFrames;
  };
  if (!add(reinterpret_cast<uintptr_t>(caller.pc))) return found;
  // A frame begins with the caller's one and the address to return to. They lie on the thread's own stack.
  auto* at = static_cast<uintptr_t*>(caller.frame);
  for (;;) {
    auto* next = reinterpret_cast<uintptr_t*>(*at);
    if (next <= at || reinterpret_cast<uintptr_t>(next) - stacks_low_ >= stacks_span_ ||
        reinterpret_cast<uintptr_t>(next) % sizeof(uintptr_t) != 0) {
      return found;
    }
    at = next;
    if (!add(at[1])) return found;
  }
}

void Checker::place(unsigned (&into)[3], unsigned thread) const {
  const unsigned* size = group_->size;
  const unsigned local[3] = {thread % size[0], thread / size[0] % size[1], thread / size[0] / size[1]};
  for (unsigned axis = 0; axis < 3; ++axis) {
    into[axis] = group_->position[axis] * group_->launch->group[axis] + local[axis];
  }
}

Event Checker::blank(int kind, const Frames& frames) const {
  Event event{};
  event.kind = kind;
  event.area = -1;
  event.count = 1;
  std::copy(frames.pcs, frames.pcs + kFrames, event.pcs);
  if (group_ != nullptr) {
    place(event.thread, current_);
    std::copy(group_->position, group_->position + 3, event.group);
  }
  return event;
}

Event Checker::of_access(int kind, unsigned area, int64_t offset, unsigned size, int how, const Caller& caller) const {
  Event event = blank(kind, frames(caller));
  event.how = how;
  event.size = size;
  event.area = static_cast<int>(area);
  event.offset = offset;
  return event;
}

void Checker::event(int kind, int64_t value, const Caller& caller, const char* text) {
  Event found = blank(kind, frames(caller));
  found.value = value;
  std::strncpy(found.text, text, sizeof(found.text) - 1);
  events.add(found);
}

void Checker::misaligned(uintptr_t address, unsigned alignment, const Caller& caller, const char* type) {
  Event found = blank(Misaligned, frames(caller));
  found.value = alignment;
  if (arena_.has(address)) {
    const unsigned index = arena_.find(address);
    found.area = static_cast<int>(index);
    found.offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(arena_.area(index).start));
  }
  std::strncpy(found.text, type, sizeof(found.text) - 1);
  events.add(found);
}

// A write that was held back is in memory by now: whether it changed anything is seen.
void Checker::settle_same_value() {
  same_.pending = false;
  if (std::memcmp(reinterpret_cast<void*>(same_.address), same_.before, same_.size) == 0) same_.event.kind = SameValue;
  events.add(same_.event);
}

// Sees that threadgroup memory is written before it is read. Whether later reads there need no look.
bool Checker::is_initialised(const Area& area, int64_t offset, unsigned size, int how, const Caller& caller) {
  uint32_t four;
  std::memcpy(&four, initialised_ + (size == 4 ? offset : 0), sizeof(four));
  if (size == 4 && four == 0x01010101) return true;
  const bool writes = (how & 1) != 0;
  unsigned unknown = 0;
  for (unsigned i = 0; i < size; ++i) {
    // Written, though nobody told of it: by a store that the compiler does not instrument.
    const bool changed = area.start[offset + i] != unwritten(static_cast<size_t>(offset) + i);
    unknown += initialised_[static_cast<size_t>(offset) + i] != 0 || changed ? 0 : 1;
  }
  if (writes) std::memset(initialised_ + offset, 1, size);
  // Whole structs and vectors of three are read with their gaps, which nobody writes.
  if (!writes && unknown > (size > 8 ? size / 2 : 0)) {
    events.add(of_access(Uninitialised, shared_, offset, size, how, caller));
    std::memset(initialised_ + offset, 1, size);  // told once
  }
  return std::memchr(initialised_ + offset, 0, size) == nullptr;
}

void Checker::access(uintptr_t address, unsigned size, int how, const Caller& caller) {
  settle();
  if (!arena_.has(address)) {
    if (is_code(address)) return;  // what the program itself holds: tables of constants
    Event found = of_access(Wild, ~0u, 0, size, how, caller);
    found.value = static_cast<int64_t>(address);
    events.add(found);
    stop();
  }
  const unsigned index = arena_.find(address);
  const Area& area = arena_.area(index);
  const int64_t offset = static_cast<int64_t>(address - reinterpret_cast<uintptr_t>(area.start));
  if (offset < 0 || static_cast<uint64_t>(offset) + size > area.bytes) {
    events.add(of_access(Outside, index, offset, size, how, caller));
    return;
  }
  const bool writes = (how & 1) != 0;
  const bool shared = index == shared_;
  if (area.fixed != 0 && !writes) return;  // whoever reads beside others races with nobody
  const bool known = shared && is_initialised(area, offset, size, how, caller);
  bool by_writes = false;
  const Touch other = races_.touch(
      address, size, shared, known, current_, static_cast<unsigned>(how),
      offset_of(caller), by_writes);
  if (other.time == 0) return;
  const int both = how & other.how;
  Event found = of_access((both & 2) == 0 ? Race : (both & 1) != 0 ? LostAdd : PartialSum, index, offset, size, how, caller);
  found.other_how = other.how;
  found.other_pc = other.pc;
  place(found.other, other.thread);
  if (by_writes && size <= sizeof(same_.before)) {
    same_.pending = true;
    same_.address = address;
    same_.size = size;
    std::memcpy(same_.before, reinterpret_cast<void*>(address), size);
    same_.event = found;
  } else {
    events.add(found);
  }
}

// The kernel cannot go on: the runtime ends it as it does for any access of memory that is not there.
void Checker::stop() {
  static void* const closed = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  *static_cast<volatile char*>(closed) = 0;
  __builtin_trap();
}

void Checker::barrier(unsigned flags, unsigned long site, const Caller& caller) {
  settle();
  const unsigned me = current_;
  Waiting& mine = waiting_[me];
  ++mine.calls;
  mine.flags = flags;
  mine.site = site;
  mine.caller = caller;
  anymps_rt_barrier(0);
  settle();
  current_ = me;
  if (opened_ < mine.calls) opened(mine.calls);
}

void Checker::opened(unsigned calls) {
  opened_ = calls;
  unsigned flags = ~0u, first = kMaxThreads, missing = kMaxThreads, absent = 0;
  const Waiting* other = nullptr;  // one that waits elsewhere: often many wait where it does
  uint64_t others = 0;
  Event at_other;
  const auto add_others = [&] {
    if (others == 0) return;
    at_other.count = others;
    events.add(at_other);
  };
  for (unsigned thread = 0; thread < group_->threads; ++thread) {
    const Waiting& waiting = waiting_[thread];
    if (waiting.calls != calls) {
      missing = std::min(missing, thread);
      ++absent;
      continue;
    }
    flags &= waiting.flags;
    if (first == kMaxThreads) {
      first = thread;
    } else if (waiting.caller.pc != waiting_[first].caller.pc || waiting.site != waiting_[first].site) {
      if (other != nullptr && other->caller.pc == waiting.caller.pc && other->site == waiting.site) {
        ++others;
        continue;
      }
      add_others();
      at_other = blank(Places, frames(waiting.caller));
      place(at_other.thread, thread);
      at_other.other_pc = frames(waiting_[first].caller).pcs[0];
      place(at_other.other, first);
      at_other.value = waiting.site != waiting_[first].site ? 1 : 0;
      other = &waiting;
      others = 1;
    }
  }
  add_others();
  races_.barrier((flags & 1u) != 0, (flags & 2u) != 0);
  if (absent != 0) {
    Event found = blank(Missing, frames(waiting_[first].caller));
    place(found.thread, first);
    place(found.other, missing);
    found.value = absent;
    events.add(found);
  }
}

// Launchers copy small constants, and that is not watched: whether they are there as a whole is asked once a thread.
void Checker::constant(const void* at, unsigned size) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (!arena_.has(address)) return;
  const unsigned index = arena_.find(address);
  const Area& area = arena_.area(index);
  const uint64_t left = area.bytes - std::min<uint64_t>(area.bytes, address - reinterpret_cast<uintptr_t>(area.start));
  if (left >= size) return;
  Event found = blank(Narrow, Frames{});
  found.area = static_cast<int>(index);
  found.size = size;
  found.value = static_cast<int64_t>(left);
  found.other_pc = index;  // one for each
  events.add(found);
}

// Looks at a thread's reads of a row of floats: `count` elements, `stride` bytes from one to the next, of `parts` floats each.
// All threads make the same of it, which is kept where this points to; `known`: another thread has put it there.
//
// Nothing was written to the row since the barrier if two threads of different SIMD groups found nothing in reading it. Of
// those who read, two of one SIMD group and one of another are enough to find who writes later.
float* Checker::row(uintptr_t address, unsigned stride, unsigned parts, unsigned count, bool& known, const Caller& caller) {
  settle();
  const unsigned simdgroup = current_ / 32;
  Row& row = row_;
  if (row.address != address || row.stride != stride || row.count != count || row.moment != races_.moment()) {
    row.address = address;
    row.stride = stride;
    row.count = count;
    row.moment = races_.moment();
    row.passes = 0;
    row.simdgroup = simdgroup;
    row.spread = false;
  }
  known = row.passes != 0;
  if (row.passes > 1 && (row.spread || simdgroup == row.simdgroup)) return row.result;
  const uint64_t before = events.added();
  for (unsigned i = 0; i < count; ++i) {
    for (unsigned part = 0; part < parts; ++part) look(address + i * uintptr_t(stride) + part * sizeof(float), sizeof(float), Read, caller);
  }
  if (events.added() != before) {
    row.passes = 0;
    known = false;
    return row.result;
  }
  row.spread |= row.passes != 0 && simdgroup != row.simdgroup;
  if (row.passes++ == 0) row.simdgroup = simdgroup;
  return row.result;
}

void Checker::simd(void* slot, Resolve resolve, unsigned long site, const Caller& caller) {
  settle();
  Lane lane{slot, resolve, current_, 0, caller};
  // One function serves all calls, so that calls of different types at one line are told apart by their site alone.
  const unsigned long other_type = reinterpret_cast<uintptr_t>(resolve) >> 4 & 0xffff;
  anymps_rt_simd(&lane, resolve_call, site | other_type);
  current_ = lane.thread;
}

void Checker::resolve_call(void* const* slots, unsigned lanes) {
  void* own[32] = {};
  Resolve resolve = nullptr;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<unsigned>(__builtin_ctz(rest));
    checker.lanes_[i] = static_cast<Lane*>(slots[i]);
    own[i] = checker.lanes_[i]->slot;
    resolve = checker.lanes_[i]->resolve;
  }
  resolve(own, lanes);
}

void Checker::missing_lane(unsigned lane, unsigned source) {
  const Lane& mine = *lanes_[lane];
  Event found = blank(anymps_check::Kind::Lane, frames(mine.caller));
  place(found.thread, mine.thread);
  found.value = source;
  place(found.other, std::min(mine.thread / 32 * 32 + source, group_->threads - 1));
  found.size = mine.thread / 32 * 32 + source < group_->threads ? 1 : 0;  // whether that thread is there at all
  events.add(found);
}

void Checker::missing_matrix(unsigned lanes) {
  const Lane& mine = *lanes_[__builtin_ctz(lanes)];
  Event found = blank(Matrix, frames(mine.caller));
  place(found.thread, mine.thread);
  found.value = 32 - __builtin_popcount(lanes);
  events.add(found);
}

void Checker::simd_barrier(unsigned flags, unsigned long site, const Caller& caller) {
  settle();
  Lane lane{nullptr, nullptr, current_, flags, caller};
  anymps_rt_simd(&lane, resolve_barrier, site);
  current_ = lane.thread;
}

void Checker::resolve_barrier(void* const* slots, unsigned lanes) {
  const Lane& first = *static_cast<Lane*>(slots[__builtin_ctz(lanes)]);
  unsigned flags = ~0u;
  for (unsigned rest = lanes; rest != 0; rest &= rest - 1) {
    flags &= static_cast<Lane*>(slots[__builtin_ctz(rest)])->flags;
  }
  const unsigned simdgroup = first.thread / 32;
  checker.settle();
  checker.races_.simd_barrier(simdgroup, (flags & 1u) != 0, (flags & 2u) != 0);
  const unsigned left = checker.group_->threads - simdgroup * 32;
  const unsigned there = left >= 32 ? ~0u : (1u << left) - 1;
  if (lanes != there) {
    Event found = checker.blank(SimdMissing, checker.frames(first.caller));
    checker.place(found.thread, first.thread);
    checker.place(found.other, simdgroup * 32 + static_cast<unsigned>(__builtin_ctz(there & ~lanes)));
    found.value = __builtin_popcount(there & ~lanes);
    checker.events.add(found);
  }
}

}  // namespace anymps_check

using anymps_check::checker;

extern "C" {

// For Python.
int anymps_check_begin(
    anymps_check::Area* areas, unsigned count, unsigned shared_area, const void* code) {
  return checker.begin(areas, count, shared_area, code);
}
void anymps_check_pause() {
  checker.pause();
}
unsigned anymps_check_end(anymps_check::Event* into, unsigned most) {
  checker.end();
  const auto& all = checker.events.all();
  const auto count = std::min(static_cast<unsigned>(all.size()), most);
  std::copy(all.begin(), all.begin() + count, into);
  return count;
}

// For launchers and the shim.
void anymps_check_thread(const Thread& thread) {
  checker.thread_begins(thread);
}
char* anymps_check_shared() {
  return checker.shared();
}
void anymps_check_barrier(unsigned flags, unsigned long site) {
  checker.barrier(flags, site, ANYMPS_CALLER);
}
void anymps_check_calls(unsigned long place) {
  anymps_rt_chain()->calls_from(place);
}
void anymps_check_called() {
  anymps_rt_chain()->called();
}
void anymps_check_returns() {
  anymps_rt_chain()->returns();
}
void anymps_check_simd(void* slot, Resolve resolve, unsigned long site) {
  checker.simd(slot, resolve, site, ANYMPS_CALLER);
}
void anymps_check_simd_barrier(unsigned flags, unsigned long site) {
  checker.simd_barrier(flags, site, ANYMPS_CALLER);
}
void anymps_check_constant(const void* address, unsigned size) {
  checker.constant(address, size);
}
float* anymps_check_row(const void* data, unsigned stride, unsigned parts, unsigned count, bool* known) {
  return checker.row(reinterpret_cast<uintptr_t>(data), stride, parts, count, *known, ANYMPS_CALLER);
}
void anymps_check_lane(unsigned lane, unsigned source) {
  checker.missing_lane(lane, source);
}
void anymps_check_matrix(unsigned lanes) {
  checker.missing_matrix(lanes);
}
}
