// The copies that a Mac would still be at, the oldest first.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace anymps::nonblocking {

extern std::atomic<bool> pending;  // whether there are any

struct Copy {
  uint64_t number = 0;
  uint32_t site = 0;
  const c10::StorageImpl* storage = nullptr;
  // To mps. Holding the source is what torch does from 2.13 on (pytorch pull 181017); before, it must not be freed.
  at::Tensor source;
  size_t hash = 0;
  uint32_t changed_at = 0;
  std::string changed_by;
  // To the CPU. The weak reference keeps the address from being used for another storage.
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> destination;
  at::Tensor target, values;  // strict: where the values go when the host waits
  bool told = false;

  bool to_cpu() const {
    return destination.has_value();
  }
};

// While one lives, the thread runs operators of our own, which touch nothing of the program's.
class Ours {
 public:
  Ours();
  ~Ours();
  Ours(const Ours&) = delete;
  Ours& operator=(const Ours&) = delete;

 private:
  const bool before_;
  c10::impl::ExcludeDispatchKeyGuard below_{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};
bool runs_ours();

// The storage of a tensor on the CPU; nullptr for others.
const c10::StorageImpl* host_storage(const at::Tensor& tensor);

size_t hash_of(const at::Tensor& dense);

// Enters a copy, at the line that runs; the oldest are let go where there are too many.
void add_pending(Copy&& copy);

// Takes the copies of which `due` holds out of the books, the oldest first, judges and delivers them. Answers whether there
// were any. `waits` false: they are let go without a wait.
bool let_go(bool waits, c10::function_ref<bool(const Copy&)> due);

// A call reads or writes that storage before the host has waited for its copies.
void touched(const c10::StorageImpl* storage, const std::string& call, bool writes);

bool is_watched(const c10::StorageImpl* storage);
uint64_t copies_so_far();

bool is_any_pending();  // and sets `pending`

// Puts the observer of who touches the host side in place, or takes it away (host_touches.cpp): it costs every call, so it is
// there only while something is pending.
void watch();

}  // namespace anymps::nonblocking
