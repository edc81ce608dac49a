// The tape's bookkeeping: per-thread chunks, interned signatures, call sites by position, totals at drain time.
#include "recorder/tape.h"

#include "recorder/autograd.h"
#include "recorder/call_sites.h"
#include "recorder/forward_lines.h"
#include "recorder/ledger.h"
#include "recorder/overwritten.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <memory>
#include <mutex>
#include <unordered_map>

namespace anymps {

namespace {

constexpr uint32_t kChunkEntries = 4096;
constexpr size_t kMaxKnown = size_t(1) << 18;   // beyond this, positions are no longer remembered per module call

struct Chunk {
  Entry entries[kChunkEntries];
  std::atomic<uint32_t> count{0};
  uint32_t drained = 0;  // guarded by the tape's mutex
};

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

struct State {
  std::mutex mutex;
  std::vector<Chunk*> chunks;  // in use or not yet drained
  std::vector<Chunk*> spare;
  uint32_t threads = 0;
  struct TotalKey {
    uint64_t a, b;
    bool operator==(const TotalKey& other) const {
      return a == other.a && b == other.b;
    }
  };
  struct TotalHash {
    size_t operator()(const TotalKey& key) const {
      return mix(key.a, key.b);
    }
  };
  std::unordered_map<TotalKey, Total, TotalHash> totals;
  uint64_t detail_limit = 0;
  uint64_t detailed = 0;
  std::atomic<uint32_t> refusals{0};
  std::atomic<uint64_t> plain{0};  // calls since the last drain that wrote no entry because of that
  std::atomic<uint32_t> generation{0};  // one more at each start, so that threads drop what they remember of an older tape
};

State& state() {
  static State* the_state = new State;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

struct ThreadTape {
  uint32_t index = 0;
  uint32_t generation = 0;
  uint64_t torch_thread = 0;
  Chunk* chunk = nullptr;
  std::unique_ptr<KnownPositions> known;

  // Signature and line of an operator by its position; looked up where it is new, and the line always if it `matters`.
  template <class Intern>
  void place(Entry& entry, uint64_t hash, bool matters, const Intern& intern_it) {
    progress::Call& call = progress::here();
    const uint64_t position = mix(mix(hash, call.path), call.ordinal++) | 1;
    const KnownPositions::Slot* slot = known->find(position);
    if (slot->key == position) {
      entry.signature = slot->signature;
      entry.site = matters ? current_site() : slot->site;
      return;
    }
    entry.signature = intern_it();
    const bool remember = known->used < kMaxKnown;
    entry.site = matters || remember ? current_site() : 0;
    if (remember) {
      known->insert(position, entry.signature, entry.site);
    }
  }

  Entry& next() {
    if (chunk == nullptr || chunk->count.load(std::memory_order_relaxed) == kChunkEntries) {
      new_chunk();
    }
    return chunk->entries[chunk->count.load(std::memory_order_relaxed)];
  }
  void publish() {
    progress::note_entry();
    chunk->count.store(chunk->count.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void new_chunk() {
    State& s = state();
    std::lock_guard<std::mutex> lock(s.mutex);
    if (s.spare.empty()) {
      chunk = new Chunk;
    } else {
      chunk = s.spare.back();
      s.spare.pop_back();
      chunk->count.store(0, std::memory_order_relaxed);
      chunk->drained = 0;
    }
    s.chunks.push_back(chunk);
  }
  void refresh() {
    State& s = state();
    const uint32_t current = s.generation.load(std::memory_order_acquire);
    if (C10_UNLIKELY(generation != current)) {
      std::lock_guard<std::mutex> lock(s.mutex);
      generation = current;
      index = s.threads++;
      torch_thread = at::RecordFunction::currentThreadId();
      chunk = nullptr;
      known = std::make_unique<KnownPositions>();
    }
  }
};

ThreadTape& mine() {
  thread_local ThreadTape tape;
  return tape;
}

// Phase, module and line of an operator that a backward runs: those of its forward one, or a line of the user's backward.
void place_in_backward(Entry& entry, const BackwardNode& node) {
  entry.sequence = static_cast<int64_t>(node.sequence);
  entry.phase = static_cast<uint8_t>(Phase::Backward);
  entry.flags |= kAutogradThread;
  const forward_lines::Place place = forward_lines::find(node.thread, node.sequence);
  entry.module = place.module;
  entry.site = place.site;
  if (node.python) {
    if (const uint32_t own = current_site_in_backward()) {
      entry.site = own;
    }
  }
}

// A forward operator's module and line, for what its node will run in the backward.
template <class Site>
void remember_forward(uint64_t thread, uint64_t sequence, uint32_t module, const Site& site) {
  if (sequence != 0 && !forward_lines::knows(thread, sequence - 1)) {
    forward_lines::remember(thread, sequence - 1, {module, site()});
  }
}

}  // namespace

uint32_t current_place() {
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && progress::here().module == 0) {
    place_in_backward(entry, node);
  }
  return entry.site != 0 ? entry.site : current_site();
}

static thread_local bool refusal_noted = false;

static thread_local int open_spans = 0;

void Span::leave() {
  --open_spans;
}

void Span::begin() {
  ++open_spans;
  refusal_noted = false;  // one from outside any call is not this call's
  start_ = now_ns();
  hash_ = mix(0x5bd1e995u, rule_.id + 1);
  fate_ = rule_.fate;
}

void Span::mix_tensor(const c10::TensorImpl* tensor) {
  // Copies of either direction have the same operator, sizes and dtypes.
  uint64_t hash = mix(hash_ + (tensor->is_mps() ? 0 : 1), (static_cast<uint64_t>(tensor->dtype() == caffe2::TypeMeta::Make<float>() ? 0 : 1 +
      static_cast<uint64_t>(c10::typeMetaToScalarType(tensor->dtype()))) << 8) | static_cast<uint64_t>(tensor->dim()));
  if (C10_LIKELY(!tensor->is_sparse())) {
    for (const int64_t size : tensor->sizes()) {
      hash = mix(hash, static_cast<uint64_t>(size));
    }
  }
  hash_ = hash;
}

void Span::write(c10::ArrayRef<const c10::TensorImpl*> inputs, c10::ArrayRef<const c10::TensorImpl*> outputs) {
  const int64_t end = now_ns();
  State& s = state();
  ThreadTape& tape = mine();
  tape.refresh();
  const bool matters = wait_ != Wait::None || fate_ != Fate::Native || direction_ == Direction::CpuToMps || direction_ == Direction::MpsToCpu;
  BackwardNode node;
  const bool in_backward = current_backward(node);
  if (C10_UNLIKELY(overwritten::any.load(std::memory_order_relaxed))) {
    for (const auto& [name, site] : overwritten::read_by(rule_, inputs)) {
      tape::note_hazard(mark_rule(name), site);
    }
  }
  if (progress::is_sparse() && !matters && (flags_ & kRaised) == 0) {
    s.plain.fetch_add(1, std::memory_order_relaxed);
    if (!in_backward || progress::here().module != 0) {
      remember_forward(tape.torch_thread, at::sequence_number::peek(), progress::here().module, current_site);
    }
    return;
  }
  const uint64_t hash = mix(hash_, static_cast<uint64_t>(fate_)) | 1;
  Entry entry{};
  if (in_backward) {
    entry.phase = static_cast<uint8_t>(Phase::Backward);
    entry.flags = kAutogradThread;
    progress::note_entry_of_backward();
  } else {
    entry.phase = progress::phase_of(wait_, direction_);
  }
  // A module that runs inside a backward is a checkpoint's: its operators are forward ones, with a line of their own.
  if (in_backward && progress::here().module == 0) {
    place_in_backward(entry, node);
    KnownPositions::Slot* known = tape.known->find(hash);
    if (known->key == hash) {
      entry.signature = known->signature;
    } else {
      entry.signature = signatures::intern(hash, rule_, fate_, inputs, outputs);
      if (tape.known->used < kMaxKnown) {
        tape.known->insert(hash, entry.signature, 0);
      }
    }
    if (matters && entry.site == 0) {
      entry.site = current_site();
    }
  } else {
    entry.module = progress::here().module;
    const uint64_t sequence = at::sequence_number::peek();
    entry.sequence = static_cast<int64_t>(sequence) - 1;
    tape.place(entry, hash, matters, [&] { return signatures::intern(hash, rule_, fate_, inputs, outputs); });
    remember_forward(tape.torch_thread, sequence, entry.module, [&] { return entry.site; });
  }
  entry.start_ns = start_;
  entry.duration_ns = end - start_;
  entry.moved_bytes = moved_bytes_;
  entry.step = progress::current_step();
  entry.thread = tape.index;
  entry.wait = static_cast<uint8_t>(wait_);
  entry.direction = static_cast<uint8_t>(direction_);
  entry.flags |= flags_;
  tape.next() = entry;
  tape.publish();
  if (ledger::has_unattributed()) {
    ledger::attribute(entry);
  }
}

void Span::raised() {
  flags_ |= kRaised;
  hash_ = mix(hash_, kRaised);  // a signature of its own, as its results are unknown
  write({}, {});
}

namespace tape {

void start(uint64_t detail_limit, bool by_observer) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  signatures::forget_all();
  s.totals.clear();
  s.spare.insert(s.spare.end(), s.chunks.begin(), s.chunks.end());
  s.chunks.clear();
  s.detail_limit = detail_limit;
  s.detailed = 0;
  s.threads = 0;
  s.refusals.store(0);
  s.plain.store(0);
  progress::start();
  s.generation.fetch_add(1, std::memory_order_release);
  tape_observed.store(by_observer, std::memory_order_relaxed);
  tape_on.store(true, std::memory_order_release);
}

void stop() {
  tape_on.store(false, std::memory_order_release);
}

void pause(bool paused) {
  tape_on.store(!paused, std::memory_order_release);
}

Drained drain() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  Drained result;
  result.dropped = s.plain.exchange(0, std::memory_order_relaxed);
  std::vector<Chunk*> still_open;
  for (Chunk* chunk : s.chunks) {
    const uint32_t count = chunk->count.load(std::memory_order_acquire);
    for (uint32_t i = chunk->drained; i < count; ++i) {
      const Entry& e = chunk->entries[i];
      const State::TotalKey key{
          (uint64_t(e.signature) << 32) | e.module,
          (uint64_t(e.site) << 32) | (uint64_t(e.phase) << 16) | (uint64_t(e.wait) << 8) | e.direction};
      Total& total = s.totals[key];
      if (total.count == 0) {
        total.signature = e.signature;
        total.module = e.module;
        total.site = e.site;
        total.phase = e.phase;
        total.wait = e.wait;
        total.direction = e.direction;
      }
      ++total.count;
      total.duration_ns += e.duration_ns;
      total.moved_bytes += e.moved_bytes;
      const bool matters = e.wait != 0 || e.refusal != 0 || e.direction == 1 || e.direction == 2 || (e.flags & (kHazard | kUnsafeCopy | kPair)) != 0;
      if (s.detailed < s.detail_limit || matters) {
        result.entries.append(reinterpret_cast<const char*>(&e), sizeof(Entry));
        ++s.detailed;
      } else {
        ++result.dropped;
      }
    }
    chunk->drained = count;
    if (count == kChunkEntries) {
      s.spare.push_back(chunk);
    } else {
      still_open.push_back(chunk);
    }
  }
  s.chunks.swap(still_open);
  result.signatures = signatures::take_new();
  result.steps = progress::take_new_steps();
  result.rounds = progress::take_new_rounds();
  return result;
}

std::vector<Total> totals() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  std::vector<Total> result;
  result.reserve(s.totals.size());
  for (const auto& item : s.totals) {
    result.push_back(item.second);
  }
  return result;
}

uint64_t pending() {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  uint64_t count = 0;
  for (const Chunk* chunk : s.chunks) {
    count += chunk->count.load(std::memory_order_relaxed) - chunk->drained;
  }
  return count;
}

// An entry of our own, in the module that runs and of no autograd node.
static Entry outside() {
  Entry entry{};
  entry.module = progress::here().module;
  entry.sequence = -1;
  return entry;
}

static void put(const Rule& rule, Fate fate, Entry entry) {
  State& s = state();
  ThreadTape& tape = mine();
  tape.refresh();
  const uint64_t hash = mix(mix(mix(0x5bd1e995u, rule.id + 1), static_cast<uint64_t>(fate)), 0x6d61726bu) | 1;
  entry.signature = signatures::intern(hash, rule, fate, {}, {});
  entry.step = progress::current_step();
  entry.thread = tape.index;
  tape.next() = entry;
  tape.publish();
}

bool take_refusal_note() {
  const bool noted = refusal_noted;
  refusal_noted = false;
  return noted;
}

Place here() {
  return recording() ? Place{current_place(), in_backward()} : Place{};
}

uint32_t note_refusal(const Rule& rule, Fate fate, const Place& place) {
  if (!recording()) {
    return 0;
  }
  refusal_noted = true;
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.phase = place.backward ? static_cast<uint8_t>(Phase::Backward) : progress::natural_phase(Wait::None, Direction::None);
  entry.site = place.site;
  entry.flags = kRaised;
  entry.refusal = state().refusals.fetch_add(1) + 1;
  put(rule, fate, entry);
  return entry.refusal;
}

void note_hazard(const Rule& rule, uint32_t site) {
  if (!recording() || muted()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kHazard;
  BackwardNode node;
  if (current_backward(node)) {
    entry.phase = static_cast<uint8_t>(Phase::Backward);
    entry.flags |= kAutogradThread;
    if (entry.module == 0) {  // else a checkpoint's recomputation
      place_in_backward(entry, node);
    }
  } else {
    entry.phase = progress::phase_of(Wait::None, Direction::None);
  }
  if (site != 0) {
    entry.site = site;
  } else if (entry.site == 0) {
    entry.site = current_site();
  }
  put(rule, Fate::Mark, entry);
}

void note_unsafe_copy(const Rule& rule, uint32_t site, uint32_t copy, uint32_t wait) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kUnsafeCopy;
  entry.phase = progress::natural_phase(Wait::None, Direction::None);
  entry.site = site;
  entry.sequence = static_cast<int64_t>(uint64_t(wait) << 32 | copy);
  put(rule, Fate::Mark, entry);
}

void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes, int64_t duration_ns) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kPair;
  entry.phase = progress::phase_of(Wait::None, Direction::None);
  entry.site = site;
  entry.sequence = other;
  entry.moved_bytes = moved_bytes;
  entry.duration_ns = duration_ns;
  put(rule, Fate::Mark, entry);
}

void note_empty(const Rule& rule, const c10::TensorImpl* tensor) {
  if (!recording() || muted() || open_spans > 0 || !ledger::has_unnamed()) {
    return;
  }
  ThreadTape& tape = mine();
  tape.refresh();
  uint64_t hash = mix(0x656d7074u, rule.id + 1);
  for (const int64_t size : tensor->sizes()) {
    hash = mix(hash, static_cast<uint64_t>(size));
  }
  hash = mix(hash, static_cast<uint64_t>(c10::typeMetaToScalarType(tensor->dtype()))) | 1;
  const auto signature = [&] { return signatures::intern(hash, rule, Fate::Native, {}, {tensor}); };
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && progress::here().module == 0) {
    place_in_backward(entry, node);
    entry.signature = signature();
  } else {
    entry.module = progress::here().module;
    entry.phase = progress::current_phase();
    if (entry.phase == 0) {
      entry.phase = progress::natural_phase(Wait::None, Direction::None);
    }
    tape.place(entry, hash, false, signature);
  }
  entry.step = progress::current_step();
  ledger::name(entry);
}

void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = start_ns;
  entry.duration_ns = end_ns - start_ns;
  entry.phase = phase != 0 ? phase : progress::natural_phase(wait, Direction::None);
  entry.wait = static_cast<uint8_t>(wait);
  entry.site = current_site();
  put(rule, wait == Wait::None ? Fate::Mark : Fate::Wait, entry);
}

}  // namespace tape
}  // namespace anymps
