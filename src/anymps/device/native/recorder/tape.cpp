// The tape's bookkeeping: per-thread chunks, interned signatures, call sites by position, totals at drain time.
#include "recorder/tape.h"

#include "recorder/autograd.h"
#include "recorder/ledger.h"
#include "recorder/overwritten.h"
#include "recorder/python_bridge.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <mutex>
#include <unordered_map>

namespace anymps {

std::atomic<bool> tape_on{false};

namespace {
std::atomic<int64_t> origin_ns{0};

int64_t steady_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace

int64_t now_ns() {
  return steady_ns() - origin_ns.load(std::memory_order_relaxed);
}

namespace {

constexpr uint32_t kChunkEntries = 4096;
constexpr size_t kMaxKnown = size_t(1) << 18;   // beyond this, positions are no longer remembered per module call
constexpr size_t kMaxRounds = size_t(1) << 20;  // beyond this a run is one last step; 32 MiB
constexpr size_t kForwardSlots = size_t(1) << 17;
constexpr size_t kMaxSignatures = size_t(1) << 17;  // beyond this, calls of one operator are no longer told apart by sizes
constexpr size_t kNamedTensors = 4;                 // of such a call

struct Chunk {
  Entry entries[kChunkEntries];
  std::atomic<uint32_t> count{0};
  uint32_t drained = 0;  // guarded by the tape's mutex
};

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  return hash * 0xD6E8FEB86659FD93ull;
}

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

struct ThreadTape;

struct State {
  std::mutex mutex;
  std::vector<Chunk*> chunks;  // in use or not yet drained
  std::vector<Chunk*> spare;
  uint32_t threads = 0;
  std::unordered_map<uint64_t, uint32_t> signatures;
  std::unordered_map<std::string, uint32_t> sizeless;  // signatures without sizes, by what they say
  std::vector<SignatureText> new_signatures;
  std::vector<StepMark> new_steps;
  std::vector<Round> new_rounds;
  size_t rounds = 0;
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
  int64_t step_start = 0;
  std::atomic<uint32_t> step{0};
  std::atomic<uint32_t> backward_step{UINT32_MAX};  // the last step in which a backward ran
  std::atomic<uint32_t> refusals{0};
  std::atomic<bool> sparse{false};
  std::atomic<uint64_t> plain{0};  // calls since the last drain that wrote no entry because of that
  std::atomic<uint32_t> generation{0};  // one more at each start, so that threads drop what they remember of an older tape
};

State& state() {
  static State* the_state = new State;  // never destroyed: threads may write until the very end of the process
  return *the_state;
}

// Which module and line a forward operator belonged to, by the sequence number of its autograd node. A table for each
// thread, as each counts for itself: the graphs of recomputed checkpoints are built on the thread of the backward, and
// have numbers that those of the program's own thread have too.
struct ForwardSlot {
  std::atomic<uint64_t> key{0};
  std::atomic<uint32_t> module{0};
  std::atomic<uint32_t> site{0};
};
constexpr size_t kForwardTables = 64;  // threads beyond that share
std::atomic<ForwardSlot*>* forward_tables() {
  static auto* tables = new std::atomic<ForwardSlot*>[kForwardTables]();  // never destroyed, nor are the tables
  return tables;
}
inline uint64_t forward_key(uint64_t thread, uint64_t sequence) {
  return ((thread + 1) << 44) ^ (sequence + 1);
}
inline ForwardSlot* forward_slot(uint64_t thread, uint64_t sequence) {  // null: the thread has built no graph
  ForwardSlot* table = forward_tables()[thread % kForwardTables].load(std::memory_order_acquire);
  return table == nullptr ? nullptr : &table[sequence % kForwardSlots];
}
ForwardSlot& forward_slot_to_write(uint64_t thread, uint64_t sequence) {
  if (C10_UNLIKELY(forward_slot(thread, sequence) == nullptr)) {
    auto* made = new ForwardSlot[kForwardSlots];
    ForwardSlot* none = nullptr;
    if (!forward_tables()[thread % kForwardTables].compare_exchange_strong(none, made, std::memory_order_acq_rel)) {
      delete[] made;  // of a thread that shares it, at the same moment
    }
  }
  return *forward_slot(thread, sequence);
}

struct ThreadTape {
  uint32_t index = 0;
  uint32_t generation = 0;
  uint64_t torch_thread = 0;
  uint8_t phase = 0;
  // Where the thread is in the modules' calls. An operator's position is its place among those of one call, and a call is
  // known by the line of the outermost one and the places of those within: one module, called twice, has two positions.
  struct Call {
    uint32_t module = 0;
    uint32_t ordinal = 0;  // operators so far
    uint32_t calls = 0;    // of modules in it so far
    uint64_t path = 0;
  };
  Call call;
  std::vector<Call> stack;
  // The module call that is no other's part and runs now, and whether anything in it reached the tape.
  uint32_t outermost = 0, outermost_site = 0;
  int64_t outermost_start = 0;
  bool wrote = false;
  Chunk* chunk = nullptr;
  std::unique_ptr<KnownPositions> known;

  // Signature and line of an operator by its position; looked up where it is new, and the line always if it `matters`.
  template <class Intern>
  void place(Entry& entry, uint64_t hash, bool matters, const Intern& intern_it) {
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
    wrote = true;
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

const char* dtype_name(c10::ScalarType type) {
  switch (type) {
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    case c10::ScalarType::ComplexHalf: return "complex32";
    default: return c10::toString(type);
  }
}

std::string describe(c10::ArrayRef<const c10::TensorImpl*> tensors, bool with_sizes = true) {
  std::string text = "[";
  for (const auto* tensor : tensors) {
    if (text.size() > 1) {
      text += ", ";
    }
    text += '"';
    text += dtype_name(c10::typeMetaToScalarType(tensor->dtype()));
    text += '[';
    bool first = true;
    for (const int64_t size : with_sizes ? tensor->sizes() : c10::IntArrayRef()) {
      text += first ? "" : ", ";
      text += std::to_string(size);
      first = false;
    }
    text += with_sizes ? "]" : "...]";
    if (tensor->device().is_cpu()) {
      text += " on cpu";
    }
    text += '"';
  }
  return text + "]";
}

// Sizes that are ever new would fill the memory: from some number on an operator's calls differ by dtypes and devices only.
uint32_t intern_without_sizes(
    const Rule& rule, Fate fate, c10::ArrayRef<const c10::TensorImpl*> inputs, c10::ArrayRef<const c10::TensorImpl*> outputs) {
  State& s = state();
  const std::string given = describe(inputs.slice(0, std::min(inputs.size(), kNamedTensors)), false);
  const std::string made = describe(outputs.slice(0, std::min(outputs.size(), kNamedTensors)), false);
  const auto next = static_cast<uint32_t>(s.signatures.size() + s.sizeless.size() + 1);
  const std::string key = std::to_string(rule.id) + ' ' + std::to_string(static_cast<int>(fate)) + given + made;
  const auto [found, is_new] = s.sizeless.emplace(key, next);
  if (is_new) {
    s.new_signatures.push_back({next, rule.id, static_cast<uint8_t>(fate), given, made});
  }
  return found->second;
}

uint32_t intern(
    uint64_t hash,
    const Rule& rule,
    Fate fate,
    c10::ArrayRef<const c10::TensorImpl*> inputs,
    c10::ArrayRef<const c10::TensorImpl*> outputs) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  const auto found = s.signatures.find(hash);
  if (found != s.signatures.end()) {
    return found->second;
  }
  if (C10_UNLIKELY(s.signatures.size() >= kMaxSignatures)) {
    return intern_without_sizes(rule, fate, inputs, outputs);
  }
  const auto id = static_cast<uint32_t>(s.signatures.size() + 1);
  s.signatures.emplace(hash, id);
  s.new_signatures.push_back({id, rule.id, static_cast<uint8_t>(fate), describe(inputs), describe(outputs)});
  return id;
}

// The phase of an operator that no hook has put into one.
Phase natural_phase(const ThreadTape& tape, Wait wait, Direction direction) {
  State& s = state();
  if (tape.call.module == 0) {
    if (direction == Direction::CpuToMps) {
      return Phase::Move;
    }
    if (wait == Wait::Item || direction == Direction::MpsToCpu) {
      return Phase::LossRead;
    }
    if (s.backward_step.load(std::memory_order_relaxed) == s.step.load(std::memory_order_relaxed)) {
      return Phase::Other;  // between backward and the optimizer's step: clipping, logging
    }
  }
  return Phase::Forward;
}

// Phase, module and line of an operator that a backward runs: those of its forward one, or a line of the user's backward.
void place_in_backward(Entry& entry, const BackwardNode& node) {
  entry.sequence = static_cast<int64_t>(node.sequence);
  entry.phase = static_cast<uint8_t>(Phase::Backward);
  entry.flags |= kAutogradThread;
  const ForwardSlot* slot = forward_slot(node.thread, node.sequence);
  if (slot != nullptr && slot->key.load(std::memory_order_acquire) == forward_key(node.thread, node.sequence)) {
    entry.module = slot->module.load(std::memory_order_relaxed);
    entry.site = slot->site.load(std::memory_order_relaxed);
  }
  if (node.python) {
    if (const uint32_t own = current_site_in_backward()) {
      entry.site = own;
    }
  }
}

// A forward operator's module and line, for what its node will run in the backward.
template <class Site>
void remember_forward(const ThreadTape& tape, uint64_t sequence, uint32_t module, const Site& site) {
  if (sequence == 0) {
    return;
  }
  const uint64_t key = forward_key(tape.torch_thread, sequence - 1);
  ForwardSlot& slot = forward_slot_to_write(tape.torch_thread, sequence - 1);
  if (slot.key.load(std::memory_order_relaxed) != key) {  // the first operator under a node is the node's own
    slot.module.store(module, std::memory_order_relaxed);
    slot.site.store(site(), std::memory_order_relaxed);
    slot.key.store(key, std::memory_order_release);
  }
}

}  // namespace

uint32_t current_place() {
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && mine().call.module == 0) {
    place_in_backward(entry, node);
  }
  return entry.site != 0 ? entry.site : current_site();
}

static thread_local bool refusal_noted = false;

static thread_local int muted_depth = 0;

Muted::Muted() {
  ++muted_depth;
}
Muted::~Muted() {
  --muted_depth;
}
bool muted() {
  return muted_depth > 0;
}

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
    overwritten::look(rule_, inputs);
  }
  if (s.sparse.load(std::memory_order_relaxed) && !matters && (flags_ & kRaised) == 0) {
    s.plain.fetch_add(1, std::memory_order_relaxed);
    if (!in_backward || tape.call.module != 0) {
      remember_forward(tape, at::sequence_number::peek(), tape.call.module, current_site);
    }
    return;
  }
  const uint64_t hash = mix(hash_, static_cast<uint64_t>(fate_)) | 1;
  Entry entry{};
  if (in_backward) {
    entry.phase = static_cast<uint8_t>(Phase::Backward);
    entry.flags = kAutogradThread;
    s.backward_step.store(s.step.load(std::memory_order_relaxed), std::memory_order_relaxed);
  } else {
    entry.phase = tape.phase != 0 ? tape.phase : static_cast<uint8_t>(natural_phase(tape, wait_, direction_));
  }
  // A module that runs inside a backward is a checkpoint's: its operators are forward ones, with a line of their own.
  if (in_backward && tape.call.module == 0) {
    place_in_backward(entry, node);
    KnownPositions::Slot* known = tape.known->find(hash);
    if (known->key == hash) {
      entry.signature = known->signature;
    } else {
      entry.signature = intern(hash, rule_, fate_, inputs, outputs);
      if (tape.known->used < kMaxKnown) {
        tape.known->insert(hash, entry.signature, 0);
      }
    }
    if (matters && entry.site == 0) {
      entry.site = current_site();
    }
  } else {
    entry.module = tape.call.module;
    const uint64_t sequence = at::sequence_number::peek();
    entry.sequence = static_cast<int64_t>(sequence) - 1;
    tape.place(entry, hash, matters, [&] { return intern(hash, rule_, fate_, inputs, outputs); });
    remember_forward(tape, sequence, entry.module, [&] { return entry.site; });
  }
  entry.start_ns = start_;
  entry.duration_ns = end - start_;
  entry.moved_bytes = moved_bytes_;
  entry.step = s.step.load(std::memory_order_relaxed);
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

void start(uint64_t detail_limit) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  s.signatures.clear();
  s.sizeless.clear();
  s.new_signatures.clear();
  s.new_steps.clear();
  s.new_rounds.clear();
  s.rounds = 0;
  s.totals.clear();
  s.spare.insert(s.spare.end(), s.chunks.begin(), s.chunks.end());
  s.chunks.clear();
  s.detail_limit = detail_limit;
  s.detailed = 0;
  s.threads = 0;
  s.step.store(0);
  s.backward_step.store(UINT32_MAX);
  s.refusals.store(0);
  s.sparse.store(false);
  s.plain.store(0);
  origin_ns.store(steady_ns());
  s.step_start = 0;
  s.generation.fetch_add(1, std::memory_order_release);
  tape_on.store(true, std::memory_order_release);
}

void stop() {
  tape_on.store(false, std::memory_order_release);
}

void pause(bool paused) {
  tape_on.store(!paused, std::memory_order_release);
}

void sparse(bool on) {
  state().sparse.store(on, std::memory_order_relaxed);
}

bool is_sparse() {
  return state().sparse.load(std::memory_order_relaxed);
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
  result.signatures.swap(s.new_signatures);
  result.steps.swap(s.new_steps);
  result.rounds.swap(s.new_rounds);
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

uint8_t current_phase() {
  if (in_backward()) {
    return static_cast<uint8_t>(Phase::Backward);
  }
  const ThreadTape& tape = mine();
  return tape.phase != 0 || tape.call.module == 0 ? tape.phase : static_cast<uint8_t>(Phase::Forward);
}

uint32_t current_step() {
  return state().step.load(std::memory_order_relaxed);
}

uint8_t set_phase(uint8_t phase) {
  ThreadTape& tape = mine();
  const uint8_t former = tape.phase;
  tape.phase = phase;
  return former;
}

static void add_round(const Round& round) {
  State& s = state();
  std::lock_guard<std::mutex> lock(s.mutex);
  if (s.rounds < kMaxRounds) {
    ++s.rounds;
    s.new_rounds.push_back(round);
  }
}

void note_round(RoundKind kind, uint32_t key, int64_t start_ns) {
  add_round({kind, key, current_site(), start_ns, now_ns()});
}

void enter_module(uint32_t module) {
  ThreadTape& tape = mine();
  const uint64_t within = is_sparse() ? 0 : tape.call.module == 0 ? current_site() : mix(tape.call.path, ++tape.call.calls);
  if (tape.stack.empty() && !is_sparse() && !in_backward()) {
    tape.outermost = module;
    tape.outermost_site = static_cast<uint32_t>(within);
    tape.outermost_start = now_ns();
    tape.wrote = false;
    // A new round has begun: what comes now is not what follows the backward of the one before.
    state().backward_step.store(UINT32_MAX, std::memory_order_relaxed);
  }
  tape.stack.push_back(tape.call);
  tape.call = {module, 0, 0, mix(within, module)};
}

void enter_backward() {
  ThreadTape& tape = mine();
  tape.stack.push_back(tape.call);
  tape.call = {};
}

void leave_module() {
  ThreadTape& tape = mine();
  if (!tape.stack.empty()) {
    tape.call = tape.stack.back();
    tape.stack.pop_back();
  }
  if (tape.stack.empty() && tape.outermost != 0) {
    if (tape.wrote) {
      add_round({RoundKind::Module, tape.outermost, tape.outermost_site, tape.outermost_start, now_ns()});
    }
    tape.outermost = 0;
  }
}

void end_step() {
  State& s = state();
  mine().call.ordinal = 0;
  std::lock_guard<std::mutex> lock(s.mutex);
  const int64_t now = now_ns();
  s.new_steps.push_back({s.step.load(), s.step_start, now});
  s.step_start = now;
  s.step.fetch_add(1);
}

// An entry of our own, in the module that runs and of no autograd node.
static Entry outside() {
  Entry entry{};
  entry.module = mine().call.module;
  entry.sequence = -1;
  return entry;
}

static void put(const Rule& rule, Fate fate, Entry entry) {
  State& s = state();
  ThreadTape& tape = mine();
  tape.refresh();
  const uint64_t hash = mix(mix(mix(0x5bd1e995u, rule.id + 1), static_cast<uint64_t>(fate)), 0x6d61726bu) | 1;
  entry.signature = intern(hash, rule, fate, {}, {});
  entry.step = s.step.load(std::memory_order_relaxed);
  entry.thread = tape.index;
  tape.next() = entry;
  tape.publish();
}

bool take_refusal_note() {
  const bool noted = refusal_noted;
  refusal_noted = false;
  return noted;
}

uint32_t note_refusal(const Rule& rule, Fate fate) {
  if (!recording()) {
    return 0;
  }
  refusal_noted = true;
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.phase = in_backward() ? static_cast<uint8_t>(Phase::Backward)
                              : static_cast<uint8_t>(natural_phase(mine(), Wait::None, Direction::None));
  entry.site = current_place();
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
    const uint8_t phase = mine().phase;
    entry.phase = phase != 0 ? phase : static_cast<uint8_t>(natural_phase(mine(), Wait::None, Direction::None));
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
  entry.phase = static_cast<uint8_t>(natural_phase(mine(), Wait::None, Direction::None));
  entry.site = site;
  entry.sequence = static_cast<int64_t>(uint64_t(wait) << 32 | copy);
  put(rule, Fate::Mark, entry);
}

void note_pair(const Rule& rule, uint32_t site, uint32_t other, int64_t moved_bytes) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = now_ns();
  entry.flags = kPair;
  const uint8_t phase = mine().phase;
  entry.phase = phase != 0 ? phase : static_cast<uint8_t>(natural_phase(mine(), Wait::None, Direction::None));
  entry.site = site;
  entry.sequence = other;
  entry.moved_bytes = moved_bytes;
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
  const auto signature = [&] { return intern(hash, rule, Fate::Native, {}, {tensor}); };
  Entry entry{};
  BackwardNode node;
  if (current_backward(node) && tape.call.module == 0) {
    place_in_backward(entry, node);
    entry.signature = signature();
  } else {
    entry.module = tape.call.module;
    entry.phase = current_phase();
    if (entry.phase == 0) {
      entry.phase = static_cast<uint8_t>(natural_phase(tape, Wait::None, Direction::None));
    }
    tape.place(entry, hash, false, signature);
  }
  entry.step = state().step.load(std::memory_order_relaxed);
  ledger::name(entry);
}

void mark(const Rule& rule, uint8_t phase, int64_t start_ns, int64_t end_ns, Wait wait) {
  if (!recording()) {
    return;
  }
  Entry entry = outside();
  entry.start_ns = start_ns;
  entry.duration_ns = end_ns - start_ns;
  entry.phase = phase != 0 ? phase : static_cast<uint8_t>(natural_phase(mine(), wait, Direction::None));
  entry.wait = static_cast<uint8_t>(wait);
  entry.site = current_site();
  put(rule, wait == Wait::None ? Fate::Mark : Fate::Wait, entry);
}

}  // namespace tape
}  // namespace anymps
