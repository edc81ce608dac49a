// The memory that copies to the CPU wrote, and the operators that were given it; which CPU tensors a line has copied before.
#include "recorder/copies/roundtrip.h"

#include "rules/rules.h"
#include "locks/locks.h"
#include "recorder/lines/autograd.h"
#include "recorder/copies/pending_copies.h"
#include "recorder/lines/call_sites.h"
#include "recorder/tape/marks.h"
#include "recorder/program/progress.h"

#include <ATen/record_function.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace anymps::roundtrip {

using nonblocking::host_storage;

namespace {

constexpr size_t kMostTrips = 1024;
constexpr int kFollowed = 64;          // operators after a copy to the CPU in which its values are followed
constexpr size_t kMostOperators = 8;   // beyond that many between the copies, more than a detour is going on
constexpr size_t kLooked = 64 << 10;   // bytes at the beginning, in the middle and at the end that tell a change

struct Trip {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // while it lives, its address is no other's
  uint32_t site;
  size_t hash;
  std::vector<std::string> operators;  // that made these values of those that were copied
};

// The GIL may be held when this mutex is taken, but is never taken under it.
Mutex mutex;
auto& trips = *new std::unordered_map<const void*, Trip>;  // by address; never destroyed, as threads may still copy
std::atomic<int> followed{0};
std::optional<at::CallbackHandle> observer;  // guarded by the mutex
std::atomic<bool> watching{false};            // whether there is one
thread_local int depth = 0;

// Of the bytes at the beginning, in the middle and at the end, which tell a change.
size_t hash_of(const c10::StorageImpl& storage) {
  const std::string_view bytes(static_cast<const char*>(storage.data()), storage.nbytes());
  const std::hash<std::string_view> hash;
  if (bytes.size() <= 3 * kLooked) {
    return hash(bytes);
  }
  const size_t first = hash(bytes.substr(0, kLooked)), last = hash(bytes.substr(bytes.size() - kLooked));
  return (first * 31 + hash(bytes.substr(bytes.size() / 2, kLooked))) * 31 + last;
}

Trip* find(const c10::StorageImpl* storage) {  // under the mutex
  const auto found = storage == nullptr || storage->data() == nullptr ? trips.end() : trips.find(storage->data());
  if (found == trips.end()) {
    return nullptr;
  }
  if (found->second.storage.expired()) {
    trips.erase(found);
    return nullptr;
  }
  return &found->second;
}

void remember(const at::Tensor& host, uint32_t site, std::vector<std::string> operators) {  // under the mutex
  const c10::StorageImpl* storage = host_storage(host);
  const bool wide = host.scalar_type() == c10::ScalarType::Double || host.scalar_type() == c10::ScalarType::ComplexDouble;
  if (storage == nullptr || storage->data() == nullptr || wide) {
    return;  // of what mps cannot hold nothing can stay there
  }
  if (trips.size() >= kMostTrips) {
    for (auto next = trips.begin(); next != trips.end();) {
      next = next->second.storage.expired() ? trips.erase(next) : std::next(next);
    }
  }
  if (trips.size() < kMostTrips) {
    Trip trip{host.storage().getWeakStorageImpl(), site, hash_of(*storage), std::move(operators)};
    trips.insert_or_assign(storage->data(), std::move(trip));
  }
}

// --- what operators make of it

struct Followed : at::ObserverContext {
  bool counted = false, outermost = false, known = true;
  uint32_t site = 0;
  std::vector<std::string> operators;
  ~Followed() override {
    depth -= counted ? 1 : 0;
  }
};

void look(Followed& call, const at::Tensor& tensor) {  // under the mutex
  const Trip* trip = find(host_storage(tensor));
  if (trip == nullptr) {
    call.known = call.known && (!tensor.defined() || tensor.dim() == 0);  // a number may come from anywhere
    return;
  }
  if (trip->hash != hash_of(*host_storage(tensor))) {
    call.known = false;  // changed by something that is no operator
    return;
  }
  call.site = trip->site;
  for (const std::string& name : trip->operators) {
    if (std::find(call.operators.begin(), call.operators.end(), name) == call.operators.end()) {
      call.operators.push_back(name);
    }
  }
}

template <class Values, class Each>
void each_tensor(const Values& values, const Each& each) {
  for (const c10::IValue& value : values) {
    if (value.isTensor()) {
      each(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) {
        each(tensor);
      }
    }
  }
}

std::unique_ptr<at::ObserverContext> before(const at::RecordFunction& call) {
  auto context = std::make_unique<Followed>();
  const auto name = call.operator_name();
  const auto op = name.has_value() ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!op.has_value() || op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd)) {
    return context;  // the operators that it is made of count
  }
  context->counted = true;
  context->outermost = depth++ == 0;
  if (!context->outermost || followed.load(std::memory_order_relaxed) <= 0) {
    return context;
  }
  std::lock_guard<std::mutex> lock(mutex);
  each_tensor(call.inputs(), [&](const at::Tensor& tensor) { look(*context, tensor); });
  if (context->known && context->site != 0) {
    context->operators.push_back(c10::toString(*name));
  }
  return context;
}

void watch(bool on);  // under the mutex

void after(const at::RecordFunction& call, at::ObserverContext* context) {
  auto& seen = *static_cast<Followed*>(context);
  if (!seen.outermost) {
    return;
  }
  const int left_over = followed.fetch_sub(1, std::memory_order_relaxed);
  if (left_over <= 1) {
    std::lock_guard<std::mutex> lock(mutex);
    watch(false);
    return;
  }
  if (!seen.known || seen.site == 0 || seen.operators.size() > kMostOperators) {
    return;
  }
  std::lock_guard<std::mutex> lock(mutex);
  each_tensor(call.outputs(), [&](const at::Tensor& tensor) {
    const c10::StorageImpl* storage = host_storage(tensor);
    const Trip* trip = find(storage);
    if (storage == nullptr || (trip != nullptr && trip->hash == hash_of(*storage))) {
      return;  // a view
    }
    remember(tensor, seen.site, seen.operators);
  });
}

void watch(bool on) {  // under the mutex
  if (on && !observer.has_value()) {
    observer = at::addGlobalCallback(at::RecordFunctionCallback(&before, &after)
                                         .needsInputs(true)
                                         .needsOutputs(true)
                                         .scopes({at::RecordScope::FUNCTION}));
  } else if (!on && observer.has_value()) {
    at::removeCallback(*observer);
    observer.reset();
  }
  watching.store(observer.has_value(), std::memory_order_relaxed);
}

bool counts() {
  return recording() && !muted() && !progress::is_sparse() && !in_backward();
}

}  // namespace

void left(const at::Tensor& host) {
  if (!counts()) {
    return;
  }
  const uint32_t site = current_site();
  std::lock_guard<std::mutex> lock(mutex);
  remember(host, site, {});
  followed.store(kFollowed, std::memory_order_relaxed);
  watch(true);
}

void returned(const at::Tensor& host) {
  if (!counts()) {
    return;
  }
  uint32_t from = 0;
  std::string operators;
  {
    std::lock_guard<std::mutex> lock(mutex);
    const c10::StorageImpl* storage = host_storage(host);
    const Trip* trip = find(storage);
    if (trip == nullptr || trip->hash != hash_of(*storage)) {
      return;  // it did not come from mps, or something that is no operator has written to it
    }
    from = trip->site;
    for (const std::string& call : trip->operators) {
      operators += (operators.empty() ? "\"" : ", \"") + call + "\"";
    }
  }
  const std::string name = "anymps::round_trip {\"operators\": [" + operators + "]}";
  tape::note_pair(mark_rule(name), current_site(), from, static_cast<int64_t>(host.nbytes()));
}

void recording_starts() {
  std::lock_guard<std::mutex> lock(mutex);
  trips.clear();
}

void recording_ends() {
  std::lock_guard<std::mutex> lock(mutex);
  watch(false);
  trips.clear();
}

}  // namespace anymps::roundtrip

namespace anymps::repeats {
namespace {

constexpr size_t kMostSources = 16;  // of one line: a layer's own, in a model of several
constexpr int kSteps = 3;

struct Source {
  c10::weak_intrusive_ptr<c10::StorageImpl> storage;  // while it is held, its address is no other's
  const c10::StorageImpl* address;
  int64_t offset, numel;  // the elements of the storage that were copied
  bool sliced;            // whether others of it were copied, too: batches of a data set
  uint32_t version;
  size_t hash;
  uint32_t step;
  int steps;
};

Mutex mutex;
auto& lines = *new std::unordered_map<uint32_t, std::vector<Source>>;  // never destroyed, as threads may still copy

}  // namespace

bool is_third(const at::Tensor& source, uint32_t site) {
  const c10::TensorImpl* impl = source.unsafeGetTensorImpl();
  if (!impl->is_cpu() || !impl->has_storage() || source.is_inference()) {
    return false;
  }
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  const uint32_t version = impl->version_counter().current_version(), step = progress::current_step();
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<Source>& known = lines[site];
  for (Source& it : known) {
    if (it.address != storage) {
      continue;
    }
    it.sliced |= it.offset != impl->storage_offset() || it.numel != impl->numel();
    if (it.sliced || it.step == step) {
      return false;
    }
    // What is no operator may have written to it: a loader fills the array that it wraps.
    const size_t hash = roundtrip::hash_of(*storage);
    const bool same = it.version == version && (it.steps == 1 || it.hash == hash);
    it = {std::move(it.storage), storage, it.offset, it.numel, false, version, hash, step, same ? it.steps + 1 : 1};
    return it.steps == kSteps;
  }
  if (known.size() == kMostSources) {
    known.erase(known.begin());
  }
  const int64_t offset = impl->storage_offset(), numel = impl->numel();
  const size_t hash = 0;  // most never return
  known.push_back({source.storage().getWeakStorageImpl(), storage, offset, numel, false, version, hash, step, 1});
  return false;
}

void forget_all() {
  std::lock_guard<std::mutex> lock(mutex);
  lines.clear();
}

}  // namespace anymps::repeats
