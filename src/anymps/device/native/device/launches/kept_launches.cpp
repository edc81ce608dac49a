// Kept launches: signatures as bytes, the tables that Python packed with the addresses of this call, and results.
#include "device/launches/kept_launches.h"

#include "recorder/recorder.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <c10/core/DefaultDtype.h>
#include <torch/csrc/Exceptions.h>

#include <cstring>
#include <mutex>
#include <vector>

namespace anymps {
namespace kept {

// `anymps_rt_call` of metal/runtime/launch.h, and the state of the floating-point unit around it.
using RuntimeCall = int (*)(const void* kernel, const char* packed, unsigned count, const unsigned* shape, unsigned workers);
using State = unsigned long (*)();
using SetState = void (*)(unsigned long state);

enum class Source : int { Argument = 0, Result = 1, Number = 2, Float = 3 };

// What is written over the bytes at `place` of a table: the address of a tensor's first element and `offset` bytes; the
// value of a 0-dim float64 or complex128 tensor as `type`, which has half the bits; or an argument that is a float, as `type`.
// `index` is the number of the result, or of the argument; of a list of tensors kItem times the place of one, from 1 on, is
// added.
struct Patch {
  Source source;
  size_t place;
  size_t index;
  int64_t offset;
  c10::ScalarType type;
};

struct Launch {
  const void* kernel;
  std::string packed;
  unsigned count;
  unsigned shape[6];
  std::vector<Patch> patches;
};

// A tensor that the call makes, or an argument that it writes; `resized` for one that was empty, `zeroed` for one that the
// kernels add to.
struct Result {
  int64_t argument;  // -1: made here
  c10::ScalarType type;
  std::vector<int64_t> sizes, strides;
  bool resized, zeroed;
};

constexpr size_t kItem = 1 << 16;

const c10::IValue& argument_at(c10::ArrayRef<c10::IValue> arguments, size_t index) {
  const c10::IValue& value = arguments[index % kItem];
  return index < kItem ? value : value.toListRef()[index / kItem - 1];
}

std::mutex mutex;
std::unordered_map<std::string, std::shared_ptr<const KeptCall>> kept_calls;
std::unordered_map<const Rule*, uint64_t> counts;
constexpr size_t kMost = 8192;  // calls; a program whose numbers change with each step would fill the memory else
constexpr size_t kSmall = 1024;  // bytes of a table on the stack

template <class T>
void put(std::string& key, const T& value) {
  key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void put_all(std::string& key, at::IntArrayRef values) {
  put(key, values.size());
  key.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int64_t));
}

bool put_tensor(std::string& key, const at::Tensor& tensor, const at::Tensor& given) {
  if (!tensor.defined()) {
    key.push_back('u');
    return true;
  }
  if (tensor.layout() != c10::kStrided || !tensor.has_storage()) {
    return false;
  }
  key.push_back(given.is_mps() ? 't' : 'c');
  put(key, tensor.scalar_type());
  put_all(key, tensor.sizes());
  put_all(key, tensor.strides());
  const c10::TensorImpl* impl = given.unsafeGetTensorImpl();
  key.push_back(static_cast<char>(tensor.is_conj() | tensor.is_neg() << 1 | impl->is_wrapped_number() << 2));
  if (!given.is_mps()) {
    put(key, tensor.storage_offset());  // the host may read it at the beginning of its storage
  }
  return true;
}

// Which is the first of these that is the tensor at `i`: a description may ask whether two are one.
void put_first(std::string& key, c10::ArrayRef<c10::IValue> values, size_t i) {
  size_t first = 0;
  while (!(values[first].isTensor() && values[first].toTensor().is_same(values[i].toTensor()))) {
    ++first;
  }
  put(key, first);
}

bool put_value(std::string& key, const c10::IValue& value, const c10::IValue& given) {
  if (value.isTensor()) {
    return put_tensor(key, value.toTensor(), given.toTensor());
  }
  if (value.isNone()) {
    key.push_back('n');
  } else if (value.isBool()) {
    key.push_back(value.toBool() ? 'y' : 'f');
  } else if (value.isInt()) {
    key.push_back('i');
    put(key, value.toInt());
  } else if (value.isDouble()) {
    key.push_back('d');
    put(key, value.toDouble());
  } else if (value.isComplexDouble()) {
    key.push_back('z');
    put(key, value.toComplexDouble());
  } else if (value.isString()) {
    key.push_back('s');
    put(key, value.toStringRef().size());
    key += value.toStringRef();
  } else if (value.isIntList()) {
    key.push_back('I');
    put_all(key, value.toIntVector());
  } else if (value.isTensorList()) {
    const auto items = value.toListRef(), from = given.toListRef();
    key.push_back('L');
    put(key, items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      if (!put_tensor(key, items[i].toTensor(), from[i].toTensor())) {
        return false;
      }
      put_first(key, items, i);
    }
  } else if (value.isList()) {
    const auto items = value.toListRef();
    key.push_back('l');
    put(key, items.size());
    for (const c10::IValue& item : items) {
      if (item.isTensor() || !put_value(key, item, item)) {
        return false;
      }
    }
  } else {
    return false;
  }
  return true;
}

const char* first_byte(const at::Tensor& tensor) {
  return static_cast<const char*>(tensor.unsafeGetTensorImpl()->data());
}

void write_number(char* to, const at::Tensor& tensor, c10::ScalarType type) {
  const char* const from = first_byte(tensor);
  const size_t parts = type == c10::ScalarType::ComplexFloat ? 2 : 1;
  for (size_t part = 0; part < parts; ++part) {
    double wide;
    std::memcpy(&wide, from + part * sizeof(wide), sizeof(wide));
    const auto narrow = static_cast<float>(wide);
    std::memcpy(to + part * sizeof(narrow), &narrow, sizeof(narrow));
  }
}

// By way of float, as c10::Scalar makes narrower numbers of a double.
void write_float(char* to, double wide, c10::ScalarType type) {
  const auto narrow = static_cast<float>(wide);
  const auto write = [to](const auto& number) { std::memcpy(to, &number, sizeof(number)); };
  switch (type) {
    case c10::ScalarType::Float:
      return write(narrow);
    case c10::ScalarType::Half:
      return write(c10::Half(narrow));
    case c10::ScalarType::BFloat16:
      return write(c10::BFloat16(narrow));
    case c10::ScalarType::ComplexFloat:
      return write(c10::complex<float>(narrow, 0));
    case c10::ScalarType::ComplexHalf:
      return write(c10::complex<c10::Half>(narrow, 0));
    default:
      TORCH_INTERNAL_ASSERT(false, "anymps: no kernel takes a number as ", type);
  }
}

std::vector<int64_t> to_sizes(PyObject* tuple) {
  std::vector<int64_t> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    found.push_back(PyLong_AsLongLong(PyTuple_GET_ITEM(tuple, i)));
  }
  return found;
}

}  // namespace kept

struct KeptCall {
  KeptCall() = default;
  KeptCall(const KeptCall&) = delete;
  ~KeptCall() = default;  // `fault` is one for all, and stays: the last holder may be a thread without the GIL

  kept::RuntimeCall call = nullptr;
  kept::State state = nullptr;
  kept::SetState set_state = nullptr;
  PyObject* fault = nullptr;  // fault(kernel, ranges): raises what stopped it; argument, address and bytes of each storage
  size_t returned = 0;        // of the results; those behind are scratch memory
  std::vector<kept::Result> results;
  std::vector<kept::Launch> launches;
};

namespace kept {

bool read_launch(PyObject* given, Launch& launch) {
  unsigned long long kernel;
  PyObject *packed, *shape, *patches;
  if (!PyArg_ParseTuple(given, "KSISO!", &kernel, &packed, &launch.count, &shape, &PyTuple_Type, &patches)) {
    return false;
  }
  launch.kernel = reinterpret_cast<const void*>(kernel);
  launch.packed.assign(PyBytes_AS_STRING(packed), static_cast<size_t>(PyBytes_GET_SIZE(packed)));
  std::memcpy(launch.shape, PyBytes_AS_STRING(shape), sizeof(launch.shape));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(patches); ++i) {
    int source, type;
    Py_ssize_t place, index;
    long long offset;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(patches, i), "innLi", &source, &place, &index, &offset, &type)) {
      return false;
    }
    launch.patches.push_back(
        {static_cast<Source>(source), static_cast<size_t>(place), static_cast<size_t>(index), offset, static_cast<c10::ScalarType>(type)});
  }
  return true;
}

bool read_result(PyObject* given, Result& result) {
  long long argument;
  int type, resized, zeroed;
  PyObject *sizes, *strides;
  if (!PyArg_ParseTuple(
          given, "LiO!O!pp", &argument, &type, &PyTuple_Type, &sizes, &PyTuple_Type, &strides, &resized, &zeroed)) {
    return false;
  }
  result = {argument, static_cast<c10::ScalarType>(type), to_sizes(sizes), to_sizes(strides), resized != 0, zeroed != 0};
  return PyErr_Occurred() == nullptr;
}

at::Tensor make_result(const Result& result, c10::ArrayRef<c10::IValue> arguments) {
  if (result.argument < 0) {
    at::Tensor made = at::detail::empty_strided_cpu(result.sizes, result.strides, result.type);
    if (result.zeroed) {
      std::memset(made.mutable_data_ptr(), 0, made.storage().nbytes());
    }
    return made;
  }
  at::Tensor tensor = arguments[static_cast<size_t>(result.argument)].toTensor();
  if (result.resized) {
    tensor.resize_(result.sizes);
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes, result.strides);
  }
  return tensor;
}

[[noreturn]] void raise_fault(const KeptCall& kept, const void* kernel, c10::ArrayRef<c10::IValue> arguments) {
  GilGuard gil;
  PyObject* buffers = PyList_New(0);
  const auto add = [&](size_t i, const c10::IValue& value) {
    if (!value.isTensor() || !value.toTensor().defined() || buffers == nullptr) {
      return;
    }
    const c10::Storage& storage = value.toTensor().storage();
    PyObject* range = Py_BuildValue(
        "nKn", static_cast<Py_ssize_t>(i), reinterpret_cast<unsigned long long>(storage.data()),
        static_cast<Py_ssize_t>(storage.nbytes()));
    if (range == nullptr || PyList_Append(buffers, range) != 0) {
      Py_CLEAR(buffers);
    }
    Py_XDECREF(range);
  };
  for (size_t i = 0; i < arguments.size(); ++i) {
    add(i, arguments[i]);
    if (arguments[i].isTensorList()) {
      for (const c10::IValue& item : arguments[i].toListRef()) {
        add(i, item);
      }
    }
  }
  PyObject* none = buffers == nullptr ? nullptr : PyObject_CallFunction(kept.fault, "KN", reinterpret_cast<unsigned long long>(kernel), buffers);
  Py_XDECREF(none);
  if (none != nullptr) {
    PyErr_SetString(PyExc_RuntimeError, "anymps: a kernel was stopped, and nobody knows by what");
  }
  python_error error;
  error.persist();
  throw std::move(error);
}

}  // namespace kept

std::string signature_of(const Rule& rule, c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<c10::IValue> given) {
  std::string key;
  key.reserve(256);
  kept::put(key, &rule);
  kept::put(key, c10::get_default_dtype_as_scalartype());
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (i < 64 && ((rule.anew >> i) & 1) && arguments[i].isDouble()) {
      key.push_back('D');
      continue;
    }
    if (!kept::put_value(key, arguments[i], given.empty() ? arguments[i] : given[i])) {
      return "";
    }
    if (arguments[i].isTensor()) {
      kept::put_first(key, arguments, i);
    }
  }
  return key;
}

std::shared_ptr<const KeptCall> kept_call(const std::string& signature) {
  const std::lock_guard<std::mutex> lock(kept::mutex);
  const auto found = kept::kept_calls.find(signature);
  return found == kept::kept_calls.end() ? nullptr : found->second;
}

bool keep_call(std::string signature, PyObject* recipe) {
  auto made = std::make_shared<KeptCall>();
  if (recipe != Py_None) {
    unsigned long long call, state, set_state;
    Py_ssize_t returned;
    PyObject *fault, *results, *launches;
    if (!PyArg_ParseTuple(
            recipe, "KKKOnO!O!", &call, &state, &set_state, &fault, &returned, &PyTuple_Type, &results, &PyTuple_Type, &launches)) {
      return false;
    }
    made->call = reinterpret_cast<kept::RuntimeCall>(call);
    made->state = reinterpret_cast<kept::State>(state);
    made->set_state = reinterpret_cast<kept::SetState>(set_state);
    made->returned = static_cast<size_t>(returned);
    made->results.resize(static_cast<size_t>(PyTuple_GET_SIZE(results)));
    made->launches.resize(static_cast<size_t>(PyTuple_GET_SIZE(launches)));
    for (size_t i = 0; i < made->results.size(); ++i) {
      if (!kept::read_result(PyTuple_GET_ITEM(results, static_cast<Py_ssize_t>(i)), made->results[i])) {
        return false;
      }
    }
    for (size_t i = 0; i < made->launches.size(); ++i) {
      if (!kept::read_launch(PyTuple_GET_ITEM(launches, static_cast<Py_ssize_t>(i)), made->launches[i])) {
        return false;
      }
    }
    made->fault = Py_NewRef(fault);
  }
  const std::lock_guard<std::mutex> lock(kept::mutex);
  if (kept::kept_calls.size() >= kept::kMost) {
    kept::kept_calls.clear();
  }
  kept::kept_calls[std::move(signature)] = std::move(made);
  return true;
}

bool run_kept(const KeptCall& call, const Rule& rule, torch::jit::Stack& stack) {
  if (call.call == nullptr) {
    return false;
  }
  const size_t count = rule.op.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
  c10::SmallVector<at::Tensor, 4> results;
  for (const kept::Result& result : call.results) {
    results.push_back(kept::make_result(result, arguments));
  }
  const auto workers = static_cast<unsigned>(at::get_num_threads());
  for (const kept::Launch& launch : call.launches) {
    alignas(16) char small[kept::kSmall];
    std::unique_ptr<char[]> large(launch.packed.size() > kept::kSmall ? new char[launch.packed.size()] : nullptr);
    char* const packed = large != nullptr ? large.get() : small;
    std::memcpy(packed, launch.packed.data(), launch.packed.size());
    for (const kept::Patch& patch : launch.patches) {
      if (patch.source == kept::Source::Number) {
        kept::write_number(packed + patch.place, kept::argument_at(arguments, patch.index).toTensor(), patch.type);
        continue;
      }
      if (patch.source == kept::Source::Float) {
        kept::write_float(packed + patch.place, arguments[patch.index].toDouble(), patch.type);
        continue;
      }
      const at::Tensor& tensor =
          patch.source == kept::Source::Argument ? kept::argument_at(arguments, patch.index).toTensor() : results[patch.index];
      const char* const address = kept::first_byte(tensor) + patch.offset;
      std::memcpy(packed + patch.place, &address, sizeof(address));
    }
    const unsigned long state = call.state();
    const int signal = call.call(launch.kernel, packed, launch.count, launch.shape, workers);
    call.set_state(state);  // a kernel makes subnormal numbers zero
    if (signal != 0) {
      kept::raise_fault(call, launch.kernel, arguments);
    }
  }
  results.resize(call.returned);
  torch::jit::drop(stack, count);
  stack.insert(stack.end(), std::make_move_iterator(results.begin()), std::make_move_iterator(results.end()));
  const std::lock_guard<std::mutex> lock(kept::mutex);
  ++kept::counts[&rule];
  return true;
}

std::unordered_map<std::string, uint64_t> kept_counts() {
  const std::lock_guard<std::mutex> lock(kept::mutex);
  std::unordered_map<std::string, uint64_t> found;
  for (const auto& [rule, count] : kept::counts) {
    found[rule->name] = count;
  }
  return found;
}

}  // namespace anymps
