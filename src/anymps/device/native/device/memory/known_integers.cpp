// A few entries for each buffer: what is known, of which of its elements, and whether the answer is still on its way.
#include "device/memory/known_integers.h"

#include "device/backend/fork.h"
#include "device/calls/alias.h"
#include "device/memory/card_traffic.h"

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace anymps::known_integers {

std::atomic<bool> any{false};

namespace {

constexpr size_t kMostOfOne = 8;     // entries of a buffer: views of a batch
constexpr int64_t kMostNumbers = int64_t(1) << 15;  // looked through on the way to the card: some 20 us
constexpr int64_t kIgnored = -100;   // the label that losses leave out if they are told nothing

struct Entry {
  uint64_t check = 0;  // its number while the answer is on its way
  c10::ScalarType type = c10::ScalarType::Long;
  bool whole = false;  // of all bytes, else of the elements below
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;
  Range range;
  at::Tensor safe, flag;
};

std::mutex mutex;  // over all that follows, and `Buffer::known`
std::unordered_set<Buffer*> known;  // of which there is something
std::unordered_map<uint64_t, Buffer*> awaited;
uint64_t last_check = 0;

// Ends with its buffer, or before.
struct Entries final : Knowledge {
  explicit Entries(Buffer* buffer) : buffer(buffer) {}
  ~Entries() override {
    if (process_state.load(std::memory_order_relaxed) == ProcessState::Forked) {
      return;  // nobody may ask there, and a thread of the parent may have held the lock
    }
    const std::lock_guard<std::mutex> lock(mutex);
    leave();
  }
  // Under the lock.
  void leave() {
    for (const Entry& entry : list) {
      awaited.erase(entry.check);
    }
    known.erase(buffer);
    any.store(!known.empty(), std::memory_order_relaxed);
  }

  Buffer* const buffer;
  std::vector<Entry> list;
};

// Under the lock, as all below that take a buffer.
Entries* entries_of(Buffer* buffer) {
  return static_cast<Entries*>(buffer->known.load(std::memory_order_acquire));
}

bool is_same(const Range& a, const Range& b) {
  return a.low == b.low && a.high == b.high && a.besides == b.besides;
}

bool shows_all(const at::Tensor& tensor) {
  return tensor.storage_offset() == 0 && tensor.is_non_overlapping_and_dense() &&
      tensor.nbytes() == tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->nbytes();
}

bool is_about(const Entry& entry, const at::Tensor& tensor) {
  return entry.type == tensor.scalar_type() &&
      (entry.whole ||
       (entry.offset == tensor.storage_offset() && tensor.sizes().equals(entry.sizes) && tensor.strides().equals(entry.strides)));
}

Entry entry_of(const at::Tensor& tensor, const Range& range) {
  Entry entry;
  entry.type = tensor.scalar_type();
  entry.whole = shows_all(tensor);
  if (!entry.whole) {
    entry.sizes = tensor.sizes().vec();
    entry.strides = tensor.strides().vec();
    entry.offset = tensor.storage_offset();
  }
  entry.range = range;
  return entry;
}

// Entries that go are handed to the caller, since their tensors end outside of the lock.
void drop(Buffer* buffer, std::vector<Entry>& gone) {
  Entries* entries = entries_of(buffer);
  if (entries == nullptr) {
    return;
  }
  for (Entry& entry : entries->list) {
    awaited.erase(entry.check);
    gone.push_back(std::move(entry));
  }
  entries->list.clear();
}

void drop_all(std::vector<Entry>& gone) {
  for (Buffer* buffer : known) {
    drop(buffer, gone);
  }
}

// Unless another thread may be about to write there, without having seen that something is known.
bool add(Buffer* buffer, Entry&& entry, std::vector<Entry>& gone) {
  Entries* entries = entries_of(buffer);
  if (entries == nullptr) {
    entries = new Entries(buffer);
    buffer->known.store(entries, std::memory_order_release);
    known.insert(buffer);
    any.store(true, std::memory_order_relaxed);
  }
  if (!card_traffic::has_been_alone()) {
    return false;
  }
  if (entries->list.size() >= kMostOfOne) {
    awaited.erase(entries->list.front().check);
    gone.push_back(std::move(entries->list.front()));
    entries->list.erase(entries->list.begin());
  }
  if (entry.check != 0) {
    awaited[entry.check] = buffer;
  }
  entries->list.push_back(std::move(entry));
  return true;
}

Buffer* buffer_behind(const at::Tensor& shown) {
  const c10::StorageImpl* storage = shown.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  return shown.is_mps() ? buffer_of(storage->data_ptr()) : buffer_of_alias(storage);
}

template <class Number>
Range range_of(const Number* numbers, int64_t count) {
  Number low = numbers[0], high = numbers[0];
  bool ignored = false;
  if constexpr (sizeof(Number) >= 4) {
    int64_t first = 0;
    while (first < count && numbers[first] == kIgnored) {
      ++first;
    }
    if (first == count) {
      return {kIgnored, kIgnored, std::nullopt};
    }
    low = high = numbers[first];
    for (int64_t i = 0; i < count; ++i) {
      const bool is_ignored = numbers[i] == kIgnored;
      const Number number = is_ignored ? low : numbers[i];
      ignored |= is_ignored;
      low = std::min(low, number);
      high = std::max(high, number);
    }
  }
  return {low, high, ignored ? std::optional<int64_t>(kIgnored) : std::nullopt};
}

}  // namespace

bool Range::lies_in(const Range& other) const {
  const bool inside = low >= other.low && high <= other.high;
  const bool apart = !besides.has_value() || besides == other.besides || (*besides >= other.low && *besides <= other.high);
  return (inside || (low == high && other.besides == low)) && apart;
}

Answer ask(const at::Tensor& shown, const Range& wanted) {
  Answer answer;
  if (!any.load(std::memory_order_relaxed)) {
    return answer;
  }
  Buffer* buffer = buffer_behind(shown);
  if (buffer == nullptr || buffer->known.load(std::memory_order_relaxed) == nullptr) {
    return answer;
  }
  const std::lock_guard<std::mutex> lock(mutex);
  const Entries* entries = entries_of(buffer);
  if (entries == nullptr) {
    return answer;
  }
  for (const Entry& entry : entries->list) {
    if (!is_about(entry, shown)) {
      continue;
    }
    if (entry.check == 0 && entry.range.lies_in(wanted)) {
      answer.good = card_traffic::rely();
      return answer;
    }
    // In the same order, too: a whole storage may be shown by many.
    if (entry.check != 0 && is_same(entry.range, wanted) && entry.safe.sizes().equals(shown.sizes()) &&
        (!entry.whole || shown.is_contiguous())) {
      answer.safe = entry.safe;
      answer.flag = entry.flag;
    }
  }
  return answer;
}

uint64_t await(const at::Tensor& shown, const Range& wanted, const at::Tensor& safe, const at::Tensor& flag) {
  Buffer* buffer = buffer_behind(shown);
  if (buffer == nullptr) {
    return 0;
  }
  Entry entry = entry_of(shown, wanted);
  if (entry.whole && !shown.is_contiguous()) {  // what stands for it has another order
    entry.whole = false;
    entry.sizes = shown.sizes().vec();
    entry.strides = shown.strides().vec();
  }
  entry.safe = safe;
  entry.flag = flag;
  std::vector<Entry> gone;
  const std::lock_guard<std::mutex> lock(mutex);
  const uint64_t check = entry.check = ++last_check;
  return add(buffer, std::move(entry), gone) ? check : 0;
}

void answered(uint64_t check, bool good) {
  std::vector<Entry> gone;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = awaited.find(check);
  if (found == awaited.end()) {
    return;  // changed since
  }
  Buffer* buffer = found->second;
  if (!good) {
    drop(buffer, gone);
    return;
  }
  awaited.erase(found);
  for (Entry& entry : entries_of(buffer)->list) {
    if (entry.check == check) {
      entry.check = 0;
      Entry ended;
      std::swap(ended.safe, entry.safe);
      std::swap(ended.flag, entry.flag);
      gone.push_back(std::move(ended));
    }
  }
}

void learn(const at::Tensor& whole, const Range& range) {
  Buffer* buffer = buffer_behind(whole);
  if (buffer == nullptr || !shows_all(whole)) {
    return;
  }
  std::vector<Entry> gone;
  const std::lock_guard<std::mutex> lock(mutex);
  drop(buffer, gone);
  add(buffer, entry_of(whole, range), gone);
}

void learn_from(const at::Tensor& whole, const at::Tensor& numbers) {
  const c10::ScalarType type = numbers.scalar_type();
  if (type != whole.scalar_type() || numbers.numel() == 0 || numbers.numel() > kMostNumbers || !numbers.is_contiguous() || !shows_all(whole)) {
    return;
  }
  if (type == c10::ScalarType::Long) {
    learn(whole, range_of(numbers.const_data_ptr<int64_t>(), numbers.numel()));
  } else if (type == c10::ScalarType::Int) {
    learn(whole, range_of(numbers.const_data_ptr<int32_t>(), numbers.numel()));
  }
}

void carry(const at::Tensor& source, const at::Tensor& copy) {
  if (!any.load(std::memory_order_relaxed) || !c10::isIntegralType(source.scalar_type(), false) ||
      (copy.scalar_type() != c10::ScalarType::Long && copy.scalar_type() != source.scalar_type())) {
    return;
  }
  Buffer* buffer = buffer_behind(source);
  if (buffer == nullptr || buffer->known.load(std::memory_order_relaxed) == nullptr) {
    return;
  }
  std::optional<Range> range;
  {
    const std::lock_guard<std::mutex> lock(mutex);
    for (const Entry& entry : entries_of(buffer)->list) {
      if (entry.check == 0 && is_about(entry, source)) {
        range = entry.range;
      }
    }
  }
  if (range.has_value()) {
    learn(copy, *range);
  }
}

void look_at_change(const c10::TensorImpl* tensor, bool written) {
  Buffer* buffer = nullptr;  // of all, where nobody says which: the parts of a sparse tensor, a piece of another storage
  if (tensor->has_storage()) {
    const at::DataPtr& data = tensor->unsafe_storage().unsafeGetStorageImpl()->data_ptr();
    buffer = buffer_of(data);
    if (buffer != nullptr ? buffer->known.load(std::memory_order_relaxed) == nullptr : data.get() == nullptr) {
      return;
    }
  } else if (!written) {
    return;
  }
  {
    std::vector<Entry> gone;
    const std::lock_guard<std::mutex> lock(mutex);
    if (buffer != nullptr) {
      drop(buffer, gone);
    } else {
      drop_all(gone);
    }
  }
  card_traffic::wait_for_uses();  // though there was nothing to drop: another thread may just have done so, and wait
}

}  // namespace anymps::known_integers
