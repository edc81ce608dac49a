// Which calls are due, and how Python is asked.
#include "feeds/feeds.h"

#include "device/device.h"
#include "feeds/observed_operators.h"
#include "feeds/observed_values.h"
#include "locks/locks.h"
#include "recorder/recorder.h"

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

namespace anymps::number_check {
namespace {

using c10::DispatchKey;
using c10::DispatchKeySet;
using observer::Operator;

// Which calls of a signature are due to be looked at: the first three, then at doubling distances. At most `kSignatures` are kept, about 2 MiB; later ones share one count each by `family`, so that a
// program whose sizes always change is looked at, too, and fills no memory.
class DueCalls {
 public:
  static constexpr size_t kSignatures = 32768;
  static constexpr uint64_t kFirst = 3;

  bool is_due(uint64_t signature, uint64_t family) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = counts_.find(signature);
    if (found == counts_.end()) {
      if (counts_.size() >= kSignatures) {
        signature = family;
      }
      found = counts_.try_emplace(signature).first;
    }
    Count& count = found->second;
    if (++count.calls < count.next) {
      return false;
    }
    if (count.calls >= kFirst) {
      count.distance *= 2;
    }
    count.next = count.calls + count.distance;
    return true;
  }

  void forget() {
    std::lock_guard<std::mutex> lock(mutex_);
    counts_.clear();
  }

 private:
  struct Count {
    uint64_t calls = 0, next = 1, distance = 1;
  };
  Mutex mutex_;
  std::unordered_map<uint64_t, Count> counts_;
};

std::optional<at::CallbackHandle> installed;
PyObject *ask_before = nullptr, *tell_after = nullptr;  // guarded by the GIL
bool all_due = false;
thread_local bool within = false;  // a call that is looked at: what it is made of is part of it
DueCalls due_calls;

// What stands between an operator and the CPU's kernel of plain tensors.
const DispatchKeySet kNotAsked =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
    DispatchKeySet({DispatchKey::Python, DispatchKey::PythonDispatcher, DispatchKey::PythonTLSSnapshot, DispatchKey::PreDispatch});

// An exception of Python that is under way is put aside; one from in here is printed, never raised.
struct Aside {
  Aside() {
    PyErr_Fetch(&type, &value, &traceback);
  }
  ~Aside() {
    if (PyErr_Occurred() != nullptr) {
      PyErr_WriteUnraisable(ask_before);
    }
    PyErr_Restore(type, value, traceback);
  }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
};

// While it lives, this thread's operators are nobody's business, and its waits raise no error of the program's. Needs the GIL.
struct Unseen {
  Unseen() {
    ++own_reads;
  }
  ~Unseen() {
    --own_reads;
  }
  const Aside aside;
  const at::DisableRecordFunctionGuard unobserved;
  const c10::impl::ExcludeDispatchKeyGuard not_asked{kNotAsked};
  const c10::AutoGradMode no_grad{false};
  const Muted muted;
  const NoDynamo none;
};

uint64_t hash_of(const at::Tensor& tensor) {
  uint64_t hash = mix(static_cast<uint64_t>(tensor.scalar_type()), static_cast<uint64_t>(tensor.device().type()));
  if (tensor.layout() != c10::Layout::Strided) {
    return hash;
  }
  for (const int64_t size : tensor.sizes()) {
    hash = mix(hash, static_cast<uint64_t>(size));
  }
  for (const int64_t stride : tensor.strides()) {
    hash = mix(hash, static_cast<uint64_t>(stride));
  }
  return hash;
}

bool is_due(const Operator& op, c10::ArrayRef<const c10::IValue> values) {
  if (all_due) {
    return true;
  }
  const uint64_t family = mix(0, reinterpret_cast<uintptr_t>(&op));
  uint64_t signature = family;
  for (const c10::IValue& value : values) {
    signature = mix(signature, static_cast<uint64_t>(value.isTensor()));
    observer::each_tensor(value, [&](const at::Tensor& tensor) { signature = mix(signature, hash_of(tensor)); });
  }
  return due_calls.is_due(signature, family);
}

// A new reference to a tuple of the values; nullptr if one has no form in Python.
template <class Values>
PyObject* tuple_of(const Values& values) {
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(values.size()));
  for (size_t i = 0; tuple != nullptr && i < values.size(); ++i) {
    PyObject* made = to_python(values[i]);
    if (made == nullptr) {
      Py_CLEAR(tuple);
      break;
    }
    PyTuple_SET_ITEM(tuple, static_cast<Py_ssize_t>(i), made);
  }
  PyErr_Clear();
  return tuple;
}

struct Looked : at::ObserverContext {
  explicit Looked(PyObject* its_kept) : kept(its_kept) {
    within = true;
  }
  ~Looked() override {
    within = false;
    GilGuard gil;
    Py_XDECREF(kept);
  }
  PyObject* kept;
  const int exceptions = std::uncaught_exceptions();
};

std::unique_ptr<at::ObserverContext> before_call(const at::RecordFunction& function) {
  if (within) {
    return nullptr;
  }
  const Operator* op = observer::operator_of(function);
  if (op == nullptr || op->kind == observer::Kind::View || op->kind == observer::Kind::Allocation || op->kind == observer::Kind::Read) {
    return nullptr;
  }
  const auto values = function.inputs();
  if (observer::reach_of(*op, values, observer::summarize(values)) != observer::Reach::Backend || !is_due(*op, values)) {
    return nullptr;
  }
  const auto name = function.operator_name();
  if (!name.has_value()) {
    return nullptr;
  }
  GilGuard gil;
  if (ask_before == nullptr) {
    return nullptr;
  }
  const Unseen unseen;
  PyObject* arguments = tuple_of(values);
  if (arguments == nullptr) {
    return nullptr;
  }
  PyObject* kept = PyObject_CallFunction(ask_before, "ssN", name->name.c_str(), name->overload_name.c_str(), arguments);
  if (kept == Py_None) {
    Py_CLEAR(kept);
  }
  return kept == nullptr ? nullptr : std::make_unique<Looked>(kept);
}

void after_call(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context == nullptr) {
    return;
  }
  auto& looked = *static_cast<Looked*>(context);
  if (std::uncaught_exceptions() > looked.exceptions) {
    return;
  }
  const tape::Place place = tape::here();
  GilGuard gil;
  if (tell_after == nullptr) {
    return;
  }
  std::string note;
  {
    const Unseen unseen;
    PyObject* results = tuple_of(function.outputs());
    PyObject* answer = results == nullptr
        ? nullptr
        : PyObject_CallFunction(tell_after, "ONIO", looked.kept, results, place.site, place.backward ? Py_True : Py_False);
    if (answer != nullptr && PyUnicode_Check(answer)) {
      const char* text = PyUnicode_AsUTF8(answer);
      note = text == nullptr ? "" : text;
    }
    Py_XDECREF(answer);
  }
  if (!note.empty() && recording()) {
    tape::note_pair(mark_rule(note), place.site, 0, 0, 0);
  }
}

}  // namespace

void start(PyObject* before, PyObject* after, bool all) {
  stop();
  due_calls.forget();
  all_due = all;
  ask_before = Py_NewRef(before);
  tell_after = Py_NewRef(after);
  installed = at::addGlobalCallback(
      at::RecordFunctionCallback(&before_call, &after_call).needsInputs(true).needsOutputs(true).scopes({at::RecordScope::FUNCTION}));
}

void stop() {
  if (installed.has_value()) {
    at::removeCallback(*installed);
    installed.reset();
  }
  Py_CLEAR(ask_before);
  Py_CLEAR(tell_after);
}

}  // namespace anymps::number_check
