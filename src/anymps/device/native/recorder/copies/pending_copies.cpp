// Which copies are under way, and what had become of their host side when the host waited.
#include "recorder/copies/pending_copies.h"

#include "rules/rules.h"
#include "locks/locks.h"
#include "recorder/lines/call_sites.h"
#include "recorder/tape/marks.h"
#include "recorder/program/progress.h"

#include <ATen/ops/copy_native.h>

#include <list>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace anymps::nonblocking {

std::atomic<bool> pending{false};

namespace {

// A loop that never waits must not hold its batches for ever: beyond this the oldest copies are looked at and let go.
constexpr size_t kMostBytes = size_t(256) << 20;
constexpr size_t kMostCopies = 4096;

// The GIL may be held when this mutex is taken, but is never taken under it.
Mutex mutex;
auto& copies = *new std::list<Copy>;  // the oldest first; never destroyed, as threads may wait until the very end
auto& watched = *new std::unordered_map<const c10::StorageImpl*, uint32_t>;  // how many copies of each storage
uint64_t count = 0;
size_t held_bytes = 0;

thread_local bool ours = false;  // this thread runs operators of these files

void report_copy(const char* kind, const std::string& call, uint32_t site, uint32_t copy, uint32_t wait) {
  tape::note_unsafe_copy(mark_rule(std::string("anymps::copy.") + kind + " " + call), site, copy, wait);
}

bool freed(const Copy& copy, const std::unordered_map<const c10::StorageImpl*, uint32_t>& held) {
  const c10::Storage& storage = copy.source.storage();
  // Memory that torch has not allocated (a numpy array's) may have an owner that is not seen here.
  return storage.resizable() && storage.use_count() <= held.at(copy.storage);
}

// `waits` false: the copy is let go without a wait.
void judge(const std::vector<Copy>& due, const std::unordered_map<const c10::StorageImpl*, uint32_t>& held, bool waits) {
  uint32_t here = 0;
  for (const Copy& copy : due) {
    if (copy.to_cpu() || !recording()) {
      continue;
    }
    const bool changed = copy.source.storage().nbytes() < copy.source.nbytes() || hash_of(copy.source) != copy.hash;
    const bool gone = waits && freed(copy, held);
    if ((changed || gone) && waits && here == 0) {
      here = current_site();
    }
    if (changed) {
      report_copy("changed", copy.changed_by, copy.changed_at != 0 ? copy.changed_at : copy.site, copy.site, here);
    }
    if (gone) {
      report_copy("freed", "", copy.site, copy.site, here);
    }
  }
}

void deliver(const Copy& copy) {
  if (copy.values.defined() && copy.target.storage().nbytes() >= copy.target.storage_offset() * copy.target.itemsize() + copy.values.nbytes()) {
    const Ours guard;
    at::Tensor target = copy.target;
    at::native::copy_(target, copy.values, /*non_blocking=*/false);
  }
}

bool too_many(const Copy& oldest) {
  // Values that are held back are let go by a wait alone.
  return !oldest.values.defined() && copies.size() > 1 && (held_bytes > kMostBytes || copies.size() > kMostCopies);
}

}  // namespace

Ours::Ours() : before_(std::exchange(ours, true)) {}

Ours::~Ours() {
  ours = before_;
}

bool runs_ours() {
  return ours;
}

const c10::StorageImpl* host_storage(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.defined() && impl->is_cpu() && impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

size_t hash_of(const at::Tensor& dense) {
  return std::hash<std::string_view>()({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

bool let_go(bool waits, c10::function_ref<bool(const Copy&)> due) {
  std::vector<Copy> taken;
  std::unordered_map<const c10::StorageImpl*, uint32_t> held;  // by us, of each storage
  {
    std::lock_guard<std::mutex> lock(mutex);
    held = watched;
    for (auto next = copies.begin(); next != copies.end();) {
      const auto here = next++;
      if (!due(*here)) {
        continue;
      }
      held_bytes -= here->to_cpu() ? 0 : here->source.nbytes();
      if (--watched[here->storage] == 0) {
        watched.erase(here->storage);
      }
      taken.push_back(std::move(*here));
      copies.erase(here);
    }
  }
  if (taken.empty()) {
    return false;
  }
  const Ours guard;
  judge(taken, held, waits);
  for (const Copy& copy : taken) {
    deliver(copy);
  }
  return true;
}

void add_pending(Copy&& copy) {
  copy.site = recording() ? current_site() : 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    copy.number = ++count;
    held_bytes += copy.to_cpu() ? 0 : copy.source.nbytes();
    ++watched[copy.storage];
    copies.push_back(std::move(copy));
  }
  let_go(/*waits=*/false, too_many);
}

bool is_watched(const c10::StorageImpl* storage) {
  std::lock_guard<std::mutex> lock(mutex);
  return watched.count(storage) != 0;
}

void touched(const c10::StorageImpl* storage, const std::string& call, bool writes) {
  if (!recording()) {
    return;
  }
  const uint32_t here = current_site();
  std::vector<uint32_t> early;  // lines of copies to the CPU that were touched too early
  {
    std::lock_guard<std::mutex> lock(mutex);
    for (Copy& copy : copies) {
      if (copy.storage != storage) {
        continue;
      }
      if (!copy.to_cpu() && writes && copy.changed_by.empty()) {
        copy.changed_at = here;
        copy.changed_by = call;
      }
      if (copy.to_cpu() && !copy.told) {
        copy.told = true;
        early.push_back(copy.site);
      }
    }
  }
  for (const uint32_t site : early) {
    report_copy("used", call, here != 0 ? here : site, site, 0);
  }
}

uint64_t copies_so_far() {
  std::lock_guard<std::mutex> lock(mutex);
  return count;
}

bool is_any_pending() {
  std::lock_guard<std::mutex> lock(mutex);
  pending.store(!copies.empty());
  return !copies.empty();
}

}  // namespace anymps::nonblocking
