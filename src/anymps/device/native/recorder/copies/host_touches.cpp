// Operators by an observer, and the methods of Tensor that read values without one.
#include <Python.h>

#include "patches/patches.h"
#include "recorder/copies/pending_copies.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/python_variable.h>

#include <optional>
#include <string>
#include <string_view>

namespace anymps::nonblocking {
namespace {

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
      if (let_go(/*waits=*/false, [&](const Copy& copy) { return copy.storage == storage && !copy.to_cpu(); })) {
        watch();
      }
    }
    return;
  }
  touched(storage, c10::toString(*name), writes);
}

std::unique_ptr<at::ObserverContext> observe(const at::RecordFunction& call) {
  if (runs_ours() || !pending.load(std::memory_order_relaxed)) {
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

// Methods of Tensor that read values without an operator. Their definitions are entered, so that what a program puts in their
// place stays, and they are noted when it calls them.
void note_read(PyObject* self, const char* method) {
  if (C10_LIKELY(!pending.load(std::memory_order_relaxed)) || !THPVariable_Check(self)) {
    return;
  }
  const c10::StorageImpl* storage = host_storage(THPVariable_Unpack(self));
  if (storage != nullptr && is_watched(storage)) {
    touched(storage, std::string("torch.Tensor.") + method, false);
  }
}

PyCFunctionWithKeywords torchs_numpy = nullptr;
PyCFunction torchs_tolist = nullptr;

PyObject* numpy(PyObject* self, PyObject* args, PyObject* names) {
  note_read(self, "numpy");
  return torchs_numpy(self, args, names);
}

PyObject* tolist(PyObject* self, PyObject* none) {
  note_read(self, "tolist");
  return torchs_tolist(self, none);
}

// Puts `ours` into the definition of a method of torch._C.TensorBase that is called as torch calls it (2.7 to 2.15).
template <class Function>
void enter(const char* name, int flags, Function ours, Function& theirs) {
  PyObject* base = theirs == nullptr ? PyObject_GetAttrString(THPVariableClass, "__base__") : nullptr;
  PyObject* method = base == nullptr ? nullptr : PyObject_GetAttrString(base, name);
  PyMethodDef* definition = method == nullptr ? nullptr : patches::definition_of(method, flags);
  if (definition != nullptr) {
    theirs = patches::replace_method(definition, ours);
  }
  Py_XDECREF(method);
  Py_XDECREF(base);
  PyErr_Clear();
}

std::optional<at::CallbackHandle> observer;  // guarded by the GIL

}  // namespace

void watch() {
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  const bool any = is_any_pending();
  if (any && !observer.has_value()) {
    enter("numpy", METH_VARARGS | METH_KEYWORDS, &numpy, torchs_numpy);
    enter("tolist", METH_NOARGS, &tolist, torchs_tolist);
    observer = at::addGlobalCallback(at::RecordFunctionCallback(&observe).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  } else if (!any && observer.has_value()) {
    at::removeCallback(*observer);
    observer.reset();
  }
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
}

}  // namespace anymps::nonblocking
