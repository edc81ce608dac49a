// Who reads a tensor after a casting copy to the CPU has overwritten it.
#include "recorder/copies/overwritten.h"

#include "locks/locks.h"

#include <algorithm>
#include <mutex>

namespace anymps::overwritten {

std::atomic<bool> any{false};

namespace {

struct Overwritten {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const c10::StorageImpl* address;  // no other's while the weak pointer is held
  std::string mark;
  uint32_t site;
  bool copied = false;  // the copy's own entry has come by
};

Mutex mutex;
auto& held = *new std::vector<Overwritten>;  // never destroyed, as threads may still write

const c10::StorageImpl* storage_of(const c10::TensorImpl* tensor) {
  return tensor != nullptr && tensor->has_storage() ? tensor->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

void drop_dead() {  // under the mutex
  held.erase(std::remove_if(held.begin(), held.end(), [](const Overwritten& it) { return it.storage.expired(); }), held.end());
  any.store(!held.empty(), std::memory_order_relaxed);
}

// Whether the call gives all of the memory new values, and reads none of the old ones.
bool writes_anew(const Rule& rule, c10::ArrayRef<const c10::TensorImpl*> inputs, const c10::StorageImpl* storage) {
  const bool copies = rule.name == "aten::copy_";
  const c10::TensorImpl* target = copies && inputs.size() == 2 ? inputs[1] : inputs[0];
  if (!copies && rule.name != "aten::zero_" && rule.name != "aten::fill_.Scalar") {
    return false;
  }
  return storage_of(target) == storage && target->numel() * target->itemsize() == storage->nbytes() &&
      (!copies || storage_of(inputs[0]) != storage);
}

}  // namespace

void remember(const c10::TensorImpl* source, std::string mark, uint32_t site) {
  const c10::StorageImpl* storage = storage_of(source);
  if (storage == nullptr) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex);
  drop_dead();
  held.push_back({source->storage().getWeakStorageImpl(), storage, std::move(mark), site});
  any.store(true, std::memory_order_relaxed);
}

std::vector<std::pair<std::string, uint32_t>> read_by(const Rule& rule, c10::ArrayRef<const c10::TensorImpl*> inputs) {
  std::vector<std::pair<std::string, uint32_t>> read;
  if ((rule.flags & kAliases) == 0) {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto it = held.begin(); it != held.end();) {
      const bool given = std::any_of(
          inputs.begin(), inputs.end(), [&](const c10::TensorImpl* input) { return storage_of(input) == it->address; });
      if (given && !it->copied) {
        it->copied = true;
      } else if (given) {
        if (!writes_anew(rule, inputs, it->address)) {
          read.emplace_back(std::move(it->mark), it->site);
        }
        it = held.erase(it);
        continue;
      }
      ++it;
    }
    drop_dead();
  }
  return read;
}

void forget_all() {
  std::lock_guard<std::mutex> lock(mutex);
  held.clear();
  any.store(false, std::memory_order_relaxed);
}

}  // namespace anymps::overwritten
