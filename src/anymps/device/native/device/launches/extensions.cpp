// The functions of torch's C interface by which compiled extensions and AOTInductor's packages launch Metal shaders.
//
// They are in torch/csrc/inductor/aoti_torch/shim_mps.cpp (torch 2.13) and torch/csrc/stable/c/shim.h (2.14); a build of torch
// that is not for macOS has none. Where a Mac would crash on a handle or an address, they fail.
#include "device/launches/extensions.h"

#include "device/interface/substrate.h"
#include "device/memory/memory.h"
#include "device/memory/waits.h"
#include "locks/locks.h"
#include "patches/patches.h"
#include "recorder/recorder.h"

#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

// As in shim_mps.h, which the oldest releases have in another form.
struct AOTIMetalKernelFunctionOpaque;
using AOTIMetalKernelFunctionHandle = AOTIMetalKernelFunctionOpaque*;
struct AOTIMetalShaderLibraryOpaque;
using AOTIMetalShaderLibraryHandle = AOTIMetalShaderLibraryOpaque*;

namespace anymps {
namespace extensions {
namespace {

constexpr unsigned kBuffers = 31;  // of a kernel of Metal
constexpr uint64_t kMostBytes = 4096;

PyObject* the_compile = nullptr;

[[noreturn]] void fail(const std::string& text) {
  throw std::runtime_error("anymps: " + text);
}

// An object of Python that threads without the GIL let go of, too.
struct Held {
  explicit Held(PyObject* object) : object(object) {}
  ~Held() {
    if (Py_IsInitialized() != 0) {  // packages delete their libraries when the process ends
      GilGuard gil;
      Py_DECREF(object);
    }
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  PyObject* const object;
};

struct Kernel : Held {
  Kernel(PyObject* object, std::string its_name) : Held(object), name(std::move(its_name)) {}
  const std::string name;
};

struct Library : Held {
  using Held::Held;
  std::unordered_map<std::string, uintptr_t> kernels;  // as torch, it has each once
};

struct Memory {
  at::DataPtr data;
  size_t nbytes;
};

// What was given out. Handles are numbers that never return, so one that was deleted is known.
struct Registry {
  Mutex mutex;
  uintptr_t last = 0;
  std::unordered_map<uintptr_t, std::shared_ptr<Library>> libraries;
  std::unordered_map<uintptr_t, std::shared_ptr<Kernel>> kernels;
  std::unordered_map<void*, Memory> memory;
};

Registry& registry() {
  static auto* const all = new Registry;  // never destroyed: packages may go after static objects
  return *all;
}

using Argument = std::variant<std::monostate, int64_t, std::string, at::Tensor>;
using Arguments = std::array<Argument, kBuffers>;

// What a thread has encoded: on a Mac a command block is alone on its stream, and nothing of it is another thread's.
struct Block {
  std::unordered_map<uintptr_t, Arguments> encoded;
  std::string failed;  // what the first call in it that failed came to
};
thread_local std::string last_failure;
thread_local Block* the_block = nullptr;  // null outside of a block
thread_local Block* outside = nullptr;    // never destroyed: its tensors may be Python's

Block& block() {
  if (the_block != nullptr) {
    return *the_block;
  }
  if (outside == nullptr) {
    outside = new Block;
  }
  return *outside;
}

struct InBlock {
  explicit InBlock(Block* block) : former(std::exchange(the_block, block)) {}
  ~InBlock() {
    the_block = former;
  }
  Block* const former;
};

template <class Map>
typename Map::mapped_type find(const Map& map, const void* handle, const char* call, const std::string& what) {
  if (handle == nullptr) {
    fail(std::string(call) + " was given a null handle in place of a " + what + ". On a Mac the process crashes");
  }
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = map.find(reinterpret_cast<uintptr_t>(handle));
  if (found == map.end()) {
    fail(std::string(call) + " was given the handle of a " + what + " that was deleted, or that never was one. On a Mac the process may crash");
  }
  return found->second;
}

std::shared_ptr<Kernel> kernel_of(AOTIMetalKernelFunctionHandle handle, const char* call) {
  return find(registry().kernels, handle, call, "kernel function");
}

// The arguments that were set since the kernel was last begun in this block.
Arguments& arguments_of(AOTIMetalKernelFunctionHandle handle, const Kernel& kernel, const char* call) {
  const auto found = block().encoded.find(reinterpret_cast<uintptr_t>(handle));
  if (found == block().encoded.end()) {
    fail(std::string(call) + " of the Metal kernel '" + kernel.name + "' comes before aoti_torch_mps_start_encoding. On a Mac it has no effect, or the process crashes");
  }
  return found->second;
}

void set_argument(AOTIMetalKernelFunctionHandle handle, unsigned index, Argument&& value, const char* call) {
  const auto kernel = kernel_of(handle, call);
  Arguments& arguments = arguments_of(handle, *kernel, call);
  if (index >= kBuffers) {
    fail(
        "argument " + std::to_string(index) + " of the Metal kernel '" + kernel->name +
        "': Metal has 31 buffers, with the numbers 0 to 30. On a Mac this is not caught");
  }
  arguments[index] = std::move(value);
}

// Throws what Python has raised: its text alone, as the C interface hands on no more.
[[noreturn]] void throw_python_error() {
  PyObject *type, *value, *traceback;
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
    PyErr_SetInterrupt();  // once more, for the program
  }
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* text = value == nullptr ? nullptr : PyObject_Str(value);
  const char* said = text == nullptr ? nullptr : PyUnicode_AsUTF8(text);
  const std::string message = said == nullptr ? "unknown" : said;
  PyErr_Clear();
  Py_XDECREF(text);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  throw std::runtime_error(message);
}

PyObject* checked(PyObject* made) {
  return made == nullptr ? throw_python_error(), nullptr : made;
}

PyObject* to_python(const Argument& argument) {
  if (const auto* number = std::get_if<int64_t>(&argument)) {
    return PyLong_FromLongLong(*number);
  }
  if (const auto* bytes = std::get_if<std::string>(&argument)) {
    return PyBytes_FromStringAndSize(bytes->data(), static_cast<Py_ssize_t>(bytes->size()));
  }
  const auto* tensor = std::get_if<at::Tensor>(&argument);
  return tensor == nullptr ? Py_NewRef(Py_None) : THPVariable_Wrap(*tensor);
}

using Sizes = std::optional<c10::ArrayRef<uint64_t>>;

c10::ArrayRef<uint64_t> sizes(const uint64_t* first, size_t count) {
  return {first, first == nullptr ? 0 : count};
}

PyObject* to_python(const Sizes& sizes) {
  if (!sizes.has_value()) {
    return Py_NewRef(Py_None);
  }
  PyObject* tuple = PyTuple_New(static_cast<Py_ssize_t>(sizes->size()));
  for (size_t i = 0; tuple != nullptr && i < sizes->size(); ++i) {
    PyTuple_SET_ITEM(tuple, i, PyLong_FromUnsignedLongLong((*sizes)[i]));
  }
  return tuple;
}

void dispatch(AOTIMetalKernelFunctionHandle handle, c10::ArrayRef<uint64_t> threads, Sizes group, const char* call) {
  const auto kernel = kernel_of(handle, call);
  TORCH_CHECK(!threads.empty() && threads.size() < 4, "Dispatch dimensions must be less than 3 and non-empty");
  TORCH_CHECK(!group.has_value() || group->size() == threads.size(), "size and group_size must have same number of dimensions");
  const Arguments given = arguments_of(handle, *kernel, call);
  size_t count = kBuffers;
  while (count > 0 && std::holds_alternative<std::monostate>(given[count - 1])) --count;
  const InBlock none(nullptr);  // a handler of a signal may launch shaders of its own meanwhile
  GilGuard gil;
  const NoDynamo no_dynamo;
  PyObject* list = checked(PyList_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i) {
    PyList_SET_ITEM(list, i, to_python(given[i]));
  }
  Py_DECREF(checked(PyObject_CallMethod(kernel->object, "launch_given", "NNN", list, to_python(Sizes(threads)), to_python(group))));
}

// Bytes at an address that `aoti_torch_mps_malloc` gave, or at one that is a tensor's.
char* bytes_at(void* start, size_t offset, size_t count, const char* call) {
  if (start == nullptr) {
    fail(std::string(call) + " was given a null address. On a Mac the process crashes");
  }
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().memory.find(start);
  if (found != registry().memory.end() && (offset > found->second.nbytes || count > found->second.nbytes - offset)) {
    fail(
        std::string(call) + " reaches from byte " + std::to_string(offset) + " to byte " + std::to_string(offset + count) + " of a buffer of " +
        std::to_string(found->second.nbytes) + ". On a Mac this is not caught and touches other data");
  }
  return static_cast<char*>(start) + offset;
}

// Whether buffers have bytes, which this processor reaches.
bool has_bytes() {
  if (substrate().holds_data() && !substrate().alias_device().is_cpu()) {
    fail("memory of compiled extensions is on this machine's CPU, and tensors are on the NVIDIA GPU: use --substrate host");
  }
  return substrate().holds_data();
}

}  // namespace

// What leaves a function becomes the code of torch's interface, and a text that the caller may ask for. Inside of a command
// block it is kept as well: AOTInductor's code looks at no code.
#define ANYMPS_ANSWER(...)                                          \
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({                      \
    try {                                                           \
      __VA_ARGS__                                                   \
    } catch (const std::exception& error) {                         \
      last_failure = error.what();                                  \
      if (the_block != nullptr && the_block->failed.empty()) {      \
        the_block->failed = last_failure;                           \
      }                                                             \
      throw;                                                        \
    }                                                               \
  })
#define ANYMPS_EXPORT extern "C" __attribute__((visibility("default")))

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_create_shader_library(const char* source, AOTIMetalShaderLibraryHandle* made) {
  ANYMPS_ANSWER({
    *made = nullptr;
    if (source == nullptr) {
      fail("aoti_torch_mps_create_shader_library was given no text. On a Mac the process crashes");
    }
    std::shared_ptr<Library> library;
    {
      GilGuard gil;
      const NoDynamo none;
      library = std::make_shared<Library>(checked(PyObject_CallFunction(the_compile, "s", source)));
    }
    std::lock_guard<std::mutex> lock(registry().mutex);
    registry().libraries.emplace(++registry().last, std::move(library));
    *made = reinterpret_cast<AOTIMetalShaderLibraryHandle>(registry().last);
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_delete_shader_library(AOTIMetalShaderLibraryHandle handle) {
  ANYMPS_ANSWER({
    const auto library = find(registry().libraries, handle, __func__, "shader library");
    std::vector<std::shared_ptr<Kernel>> kernels;  // let go of below, without the lock
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (const auto& [name, kernel] : library->kernels) {
      kernels.push_back(registry().kernels.at(kernel));
      registry().kernels.erase(kernel);
    }
    registry().libraries.erase(reinterpret_cast<uintptr_t>(handle));
  })
}

ANYMPS_EXPORT AOTITorchError
aoti_torch_mps_get_kernel_function(AOTIMetalShaderLibraryHandle handle, const char* name, AOTIMetalKernelFunctionHandle* found) {
  ANYMPS_ANSWER({
    *found = nullptr;
    const auto library = find(registry().libraries, handle, __func__, "shader library");
    if (name == nullptr) {
      fail("aoti_torch_mps_get_kernel_function was given no name. On a Mac the process crashes");
    }
    std::shared_ptr<Kernel> kernel;
    {
      GilGuard gil;
      const NoDynamo none;
      kernel = std::make_shared<Kernel>(checked(PyObject_CallMethod(library->object, "kernel", "s", name)), name);
    }
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto [place, is_new] = library->kernels.try_emplace(name, registry().last + 1);
    if (is_new) {
      registry().kernels.emplace(++registry().last, std::move(kernel));
    }
    *found = reinterpret_cast<AOTIMetalKernelFunctionHandle>(place->second);
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_start_encoding(AOTIMetalKernelFunctionHandle handle) {
  ANYMPS_ANSWER({
    kernel_of(handle, __func__);
    block().encoded[reinterpret_cast<uintptr_t>(handle)] = Arguments();
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_set_arg_tensor(AOTIMetalKernelFunctionHandle handle, unsigned index, AtenTensorHandle tensor) {
  ANYMPS_ANSWER({
    TORCH_CHECK(tensor != nullptr, "Tensor is null.");
    const at::Tensor& given = *torch::aot_inductor::tensor_handle_to_tensor_pointer(tensor);
    const bool on_cpu = given.device().is_cpu();
    TORCH_CHECK(given.is_mps() || (on_cpu && given.dim() == 0), "Passed CPU tensor to MPS op");
    set_argument(handle, index, on_cpu ? given.clone() : given, __func__);
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_set_arg_int(AOTIMetalKernelFunctionHandle handle, unsigned index, int64_t value) {
  ANYMPS_ANSWER({ set_argument(handle, index, value, __func__); })
}

ANYMPS_EXPORT AOTITorchError torch_mps_set_arg_bytes(AOTIMetalKernelFunctionHandle handle, unsigned index, const void* bytes, uint64_t size) {
  ANYMPS_ANSWER({
    TORCH_CHECK(bytes != nullptr, "Pointer is null.");
    TORCH_CHECK(
        size > 0 && size <= kMostBytes, "size must be in (0, 4096], got ", size,
        ". Metal setBytes only supports transient data up to 4 KB. Pass larger data as a tensor.");
    set_argument(handle, index, std::string(static_cast<const char*>(bytes), size), __func__);
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_dispatch_single(AOTIMetalKernelFunctionHandle handle, uint64_t length) {
  ANYMPS_ANSWER({ dispatch(handle, length, std::nullopt, __func__); })
}

ANYMPS_EXPORT AOTITorchError
aoti_torch_mps_dispatch_single_with_group_size(AOTIMetalKernelFunctionHandle handle, uint64_t length, uint64_t group) {
  ANYMPS_ANSWER({ dispatch(handle, length, c10::ArrayRef<uint64_t>(group), __func__); })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_dispatch_array(AOTIMetalKernelFunctionHandle handle, const uint64_t* lengths, size_t count) {
  ANYMPS_ANSWER({ dispatch(handle, sizes(lengths, count), std::nullopt, __func__); })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_dispatch_array_with_group_size(
    AOTIMetalKernelFunctionHandle handle,
    const uint64_t* lengths,
    size_t count,
    const uint64_t* groups,
    size_t group_count) {
  ANYMPS_ANSWER({ dispatch(handle, sizes(lengths, count), sizes(groups, group_count), __func__); })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_malloc(void** made, size_t nbytes) {
  ANYMPS_ANSWER({
    *made = nullptr;
    has_bytes();
    if (nbytes > 0) {
      at::DataPtr data = mps_allocator()->allocate(nbytes);
      *made = data.get();
      std::lock_guard<std::mutex> lock(registry().mutex);
      registry().memory.emplace(*made, Memory{std::move(data), nbytes});
    }
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_free(void* start) {
  ANYMPS_ANSWER({
    if (start != nullptr) {
      decltype(registry().memory)::node_type memory;  // let go of below, without the lock
      std::lock_guard<std::mutex> lock(registry().mutex);
      memory = registry().memory.extract(start);
      if (memory.empty()) {
        fail("aoti_torch_mps_free was given an address that aoti_torch_mps_malloc did not give, or that is free. On a Mac the process may crash");
      }
    }
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_memcpy(void* buffer, size_t offset, size_t from, size_t count, uint8_t* source) {
  ANYMPS_ANSWER({
    char* const target = bytes_at(buffer, offset, count, __func__);
    if (source == nullptr) {
      fail("aoti_torch_mps_memcpy was given a null address. On a Mac the process crashes");
    }
    if (has_bytes()) {
      std::memcpy(target, source + from, count);
    }
  })
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_copy_buffer(void* source, void* target, size_t count, size_t from, size_t to) {
  ANYMPS_ANSWER({
    char* const first = bytes_at(target, to, count, __func__);
    const char* const last = bytes_at(source, from, count, __func__);
    if (has_bytes()) {
      std::memmove(first, last, count);
    }
  })
}

using Callback = void (*)(AOTIMetalKernelFunctionHandle, void*);

ANYMPS_EXPORT void aoti_torch_mps_shared_callback(AOTIMetalKernelFunctionHandle handle, void* function) {
  (*static_cast<std::function<void(AOTIMetalKernelFunctionHandle)>*>(function))(handle);
}

ANYMPS_EXPORT AOTITorchError aoti_torch_mps_run_command_block(AOTIMetalKernelFunctionHandle handle, Callback callback, void* data) {
  ANYMPS_ANSWER({
    if (handle == nullptr && !last_failure.empty()) {  // nobody looked why there is none
      delayed::note(Refusal::Index, mark_rule("metal::unknown"), last_failure);
    }
    const auto kernel = kernel_of(handle, __func__);
    if (callback == nullptr) {
      fail("aoti_torch_mps_run_command_block was given no callback. On a Mac the process crashes");
    }
    if (the_block != nullptr) {
      fail("aoti_torch_mps_run_command_block runs inside of a command block. On a Mac it would wait for itself, and the process ends");
    }
    Block block;
    const InBlock inside(&block);
    callback(handle, data);
    if (!block.failed.empty()) {  // or why not all was launched
      delayed::note(Refusal::Index, mark_rule("metal::" + kernel->name), block.failed);
    }
  })
}

#undef ANYMPS_ANSWER

}  // namespace extensions

void answer_extensions(PyObject* compile) {
  patches::keep(extensions::the_compile, compile);
}

}  // namespace anymps
