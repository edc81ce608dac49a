// Which copies are under way, who touches their host side, and what had become of it when the host waited.
#include <Python.h>

#include "recorder/nonblocking.h"

#include "law/law.h"
#include "recorder/call_sites.h"
#include "recorder/progress.h"
#include "recorder/tape.h"

#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/fill_ops.h>
#include <ATen/ops/logical_not_ops.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace anymps::nonblocking {

std::atomic<bool> pending{false};

namespace {

// A loop that never waits must not hold its batches for ever: beyond this the oldest copies are looked at and let go.
constexpr size_t kMostBytes = size_t(256) << 20;
constexpr size_t kMostCopies = 4096;

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

// The GIL may be held when this mutex is taken, but is never taken under it.
std::mutex mutex;
auto& copies = *new std::list<Copy>;  // the oldest first; never destroyed, as threads may wait until the very end
auto& watched = *new std::unordered_map<const c10::StorageImpl*, uint32_t>;  // how many copies of each storage
uint64_t count = 0;
size_t held_bytes = 0;
size_t copies_to_cpu = 0;
std::atomic<bool> strict{false};

thread_local bool ours = false;  // this thread runs operators of this file
struct Ours {
  const bool before = std::exchange(ours, true);
  c10::impl::ExcludeDispatchKeyGuard below{c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  ~Ours() {
    ours = before;
  }
};

const c10::StorageImpl* host_storage(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return tensor.defined() && impl->is_cpu() && impl->has_storage() ? impl->unsafe_storage().unsafeGetStorageImpl() : nullptr;
}

size_t hash_of(const at::Tensor& dense) {
  return std::hash<std::string_view>()({static_cast<const char*>(dense.const_data_ptr()), dense.nbytes()});
}

// A second tensor over the same storage, which resizing the first one does not touch.
at::Tensor second(const at::Tensor& tensor) {
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false));
}

// --- what is found

void tell(const char* finding, const std::string& call, uint32_t site, uint32_t copy, uint32_t wait) {
  tape::note_unsafe_copy(mark_rule(std::string("anymps::copy.") + finding + " " + call), site, copy, wait);
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
      tell("MPS701", copy.changed_by, copy.changed_at != 0 ? copy.changed_at : copy.site, copy.site, here);
    }
    if (gone) {
      tell("MPS702", "", copy.site, copy.site, here);
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

// Not a number; of integers a value that no index and no length has; of truth values the wrong ones.
void spoil(at::Tensor& tensor) {
  const c10::ScalarType type = tensor.scalar_type();
  if (c10::isFloatingType(type) || c10::isComplexType(type)) {
    at::_ops::fill__Scalar::call(tensor, std::numeric_limits<double>::quiet_NaN());
  } else if (type == c10::ScalarType::Bool) {
    at::_ops::logical_not_::call(tensor);
  } else if (c10::isIntegralType(type, false)) {
    const int unused = 64 - static_cast<int>(tensor.itemsize()) * 8;
    const int64_t pattern = c10::isSignedType(type) ? static_cast<int64_t>(0xA5A5A5A5A5A5A5A5ull) : 0x5A5A5A5A5A5A5A5All;
    at::_ops::fill__Scalar::call(tensor, pattern >> unused);
  }
}

void watch();

// Takes the copies of which `due` holds out of the books, the oldest first, judges and delivers them.
template <class Due>
void let_go(bool waits, const Due& due) {
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
      copies_to_cpu -= here->to_cpu() ? 1 : 0;
      if (--watched[here->storage] == 0) {
        watched.erase(here->storage);
      }
      taken.push_back(std::move(*here));
      copies.erase(here);
    }
  }
  if (taken.empty()) {
    return;
  }
  const Ours guard;
  judge(taken, held, waits);
  for (const Copy& copy : taken) {
    deliver(copy);
  }
  watch();
}

// --- who touches what

bool one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  for (const std::string_view one : names) {
    if (name == one || (one.back() == '*' && name.substr(0, one.size() - 1) == one.substr(0, one.size() - 1))) {
      return true;
    }
  }
  return false;
}

// Operators that look at a tensor's shape only, or call another one that does the reading.
bool reads_no_values(std::string_view base) {
  return one_of(
      base,
      {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "new_*", "is_*",
       "size", "stride", "numel", "dim", "sym_*", "storage_offset", "get_device", "requires_grad_", "retain_grad",
       "output_nr", "_version", "result_type", "can_cast", "_to_copy", "expand_as", "view_as", "reshape_as", "type_as",
       "record_stream", "_has_compatible_shallow_copy_type", "set_data"});
}

// Copies between the two devices queue behind the pending one, unless they cast on the CPU.
bool in_order(std::string_view base, c10::ArrayRef<const c10::IValue> inputs) {
  if (!one_of(base, {"copy_", "_copy_from"}) || inputs.size() < 2 || !inputs[0].isTensor() || !inputs[1].isTensor()) {
    return false;
  }
  const at::Tensor &first = inputs[0].toTensor(), &other = inputs[1].toTensor();
  return (first.is_mps() || other.is_mps()) && first.scalar_type() == other.scalar_type();
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
    tell("MPS703", call, here != 0 ? here : site, site, 0);
  }
}

void argument(const at::RecordFunction& call, const at::Tensor& tensor, size_t place) {
  const c10::StorageImpl* storage = host_storage(tensor);
  if (C10_LIKELY(storage == nullptr || !is_watched(storage))) {
    return;
  }
  const auto name = call.operator_name();
  const auto op = name.has_value() ? c10::Dispatcher::singleton().findOp(*name) : std::nullopt;
  if (!op.has_value() || !op->hasSchema() || place >= op->schema().arguments().size() || op->hasTag(at::Tag::inplace_view)) {
    return;
  }
  const c10::AliasInfo* alias = op->schema().arguments()[place].alias_info();
  const bool writes = alias != nullptr && alias->isWrite();
  const std::string base = name->name.substr(name->name.find("::") + 2);
  if ((alias != nullptr && !writes) || reads_no_values(base)) {
    return;
  }
  const Ours guard;
  if (in_order(base, call.inputs())) {
    if (writes) {  // what it writes comes after the copies to mps have read, so they are judged now
      let_go(/*waits=*/false, [&](const Copy& copy) { return copy.storage == storage && !copy.to_cpu(); });
    }
    return;
  }
  const std::string full = name->overload_name.empty() ? name->name : name->name + "." + name->overload_name;
  touched(storage, full, writes);
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& call) {
  if (ours || !pending.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const auto inputs = call.inputs();
  for (size_t place = 0; place < inputs.size(); ++place) {
    const c10::IValue& value = inputs[place];
    if (value.isTensor()) {
      argument(call, value.toTensor(), place);
    } else if (value.isList() && !value.isIntList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) {  // among indices there may be None
          argument(call, item.toTensor(), place);
        }
      }
    }
  }
  return nullptr;
}

// Methods of Tensor that read values without an operator, replaced while a copy to the CPU is under way.
constexpr const char* kReaders[] = {"numpy", "tolist"};

template <size_t which>
PyObject* read_by(PyObject* self, PyObject* args, PyObject* names) {
  if (THPVariable_Check(self)) {
    const c10::StorageImpl* storage = host_storage(THPVariable_Unpack(self));
    if (storage != nullptr && is_watched(storage)) {
      touched(storage, std::string("torch.Tensor.") + kReaders[which], false);
    }
  }
  PyObject* base = PyObject_GetAttrString(THPVariableClass, "__base__");  // torch._C.TensorBase, which has the methods
  PyObject* method = base == nullptr ? nullptr : PyObject_GetAttrString(base, kReaders[which]);
  Py_XDECREF(base);
  if (method == nullptr) {
    return nullptr;
  }
  const Py_ssize_t size = PyTuple_GET_SIZE(args);
  PyObject* all = PyTuple_New(size + 1);
  PyTuple_SET_ITEM(all, 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyTuple_SET_ITEM(all, i + 1, Py_NewRef(PyTuple_GET_ITEM(args, i)));
  }
  PyObject* result = PyObject_Call(method, all, names);
  Py_DECREF(all);
  Py_DECREF(method);
  return result;
}

template <size_t which>
PyMethodDef reader() {
  return {
      kReaders[which],
      reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&read_by<which>)),
      METH_VARARGS | METH_KEYWORDS,
      "The method of torch, noting that the values were taken before the host has waited for them."};
}

PyMethodDef readers[] = {reader<0>(), reader<1>()};

void replace_readers() {
  for (PyMethodDef& definition : readers) {
    PyObject* method = PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(THPVariableClass), &definition);
    if (method == nullptr || PyObject_SetAttrString(THPVariableClass, definition.ml_name, method) != 0) {
      PyErr_Clear();
    }
    Py_XDECREF(method);
  }
}

void put_readers_back() {
  for (const char* name : kReaders) {
    if (PyObject_DelAttrString(THPVariableClass, name) != 0) {
      PyErr_Clear();
    }
  }
}

std::optional<at::CallbackHandle> observer;  // guarded by the GIL, as the next
bool readers_replaced = false;

// Puts the eyes in place, or takes them away: both cost every call, so they are there only while something is pending.
void watch() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  bool any = false, to_cpu = false;
  {
    std::lock_guard<std::mutex> lock(mutex);
    any = !copies.empty();
    to_cpu = copies_to_cpu != 0;
    pending.store(any);
  }
  if (any && !observer.has_value()) {
    observer = at::addGlobalCallback(at::RecordFunctionCallback(&observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  } else if (!any && observer.has_value()) {
    at::removeCallback(*observer);
    observer.reset();
  }
  if (to_cpu != readers_replaced) {
    to_cpu ? replace_readers() : put_readers_back();
    readers_replaced = to_cpu;
  }
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
}

bool too_many(const Copy& oldest) {
  // Values that are held back are let go by a wait alone.
  return !oldest.values.defined() && copies.size() > 1 && (held_bytes > kMostBytes || copies.size() > kMostCopies);
}

void add(Copy&& copy) {
  copy.site = recording() ? current_site() : 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    copy.number = ++count;
    held_bytes += copy.to_cpu() ? 0 : copy.source.nbytes();
    copies_to_cpu += copy.to_cpu() ? 1 : 0;
    ++watched[copy.storage];
    copies.push_back(std::move(copy));
  }
  let_go(/*waits=*/false, too_many);
  watch();
}

}  // namespace

void hold_back(bool value) {
  strict.store(value);
}

bool returns_early(const at::Tensor& destination, const at::Tensor& source) {
  if (!source.is_cpu() || destination.is_cpu()) {
    return true;
  }
  if (!destination.sizes().equals(source.sizes())) {
    return false;
  }
  for (int64_t i = 0; i < source.dim(); ++i) {
    if (source.size(i) > 1 && source.stride(i) != destination.stride(i)) {
      return false;
    }
  }
  return true;
}

void started_to_mps(const at::Tensor& source, bool casts) {
  if (casts || !recording() || !source.is_non_overlapping_and_dense()) {
    return;
  }
  Copy copy;
  copy.storage = host_storage(source);
  copy.source = second(source);
  copy.hash = hash_of(source);
  add(std::move(copy));
}

void started_to_cpu(at::Tensor& destination) {
  const bool held_back = strict.load();
  const c10::StorageImpl* storage = host_storage(destination);
  if (storage == nullptr || !(recording() || held_back)) {
    return;
  }
  Copy copy;
  copy.storage = storage;
  copy.destination.emplace(destination.storage().getWeakStorageImpl());
  if (held_back) {
    const Ours guard;
    copy.target = second(destination);
    copy.values = at::_ops::clone::call(copy.target, std::nullopt);
    spoil(copy.target);
  }
  add(std::move(copy));
}

uint64_t started() {
  std::lock_guard<std::mutex> lock(mutex);
  return count;
}

void settle(uint64_t up_to) {
  let_go(/*waits=*/true, [&](const Copy& copy) { return copy.number <= up_to; });
}

void recording_starts() {
  settle(std::numeric_limits<uint64_t>::max());
}

void recording_ends() {
  let_go(/*waits=*/false, [](const Copy& copy) { return !copy.values.defined(); });
}

}  // namespace anymps::nonblocking
