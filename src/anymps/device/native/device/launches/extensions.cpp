// The functions of torch's C interface by which compiled extensions and AOTInductor's packages launch Metal shaders.
//
// Source: torch/csrc/inductor/aoti_torch/shim_mps.cpp (torch 2.13) and torch/csrc/stable/c/shim.h (2.14). No build of torch has
// them that is not for macOS. Where a Mac would go by a handle or an address that is none, they fail.
#include "device/launches/extensions.h"

#include "device/interface/substrate.h"
#include "device/launches/launches.h"
#include "device/memory/memory.h"
#include "device/memory/waits.h"
#include "locks/locks.h"
#include "patches/patches.h"
#include "recorder/recorder.h"

#include <ATen/EmptyTensor.h>
#include <c10/util/ScopeExit.h>
#include <torch/csrc/inductor/aoti_torch/utils.h>

#include <algorithm>
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
#include <vector>

namespace anymps {
namespace extensions {
namespace {

using Handle = const void*;  // as C has it, of any kind
using Code = AOTITorchError;

constexpr unsigned kBuffers = 31;  // of a kernel of Metal
constexpr uint64_t kMostBytes = 4096;

PyObject* the_compile = nullptr;

[[noreturn]] void fail(const std::string& text) {
  throw std::runtime_error("anymps: " + text);
}

void refuse_null(const void* given, const std::string& what) {
  if (given == nullptr) {
    fail(what + " is null. On a Mac the process crashes");
  }
}

enum class Kind : uint8_t { Library, Kernel };

// A library or a kernel: an object of Python that threads without the GIL let go of, too.
struct Held {
  const Kind kind;
  const std::string name;
  PyObject* const object;
  std::unordered_map<std::string, Handle> kernels;  // of a library, each once, as in torch

  ~Held() {
    if (Py_IsInitialized() != 0) {  // packages delete their libraries when the process ends
      GilGuard gil;
      Py_DECREF(object);
    }
  }
};
using Shared = std::shared_ptr<Held>;

// What was given out. Handles are numbers that do not come again, so one that was deleted is known.
struct Registry {
  Mutex mutex;
  uintptr_t last = 0;
  std::unordered_map<Handle, Shared> held;
  std::unordered_map<Handle, std::pair<at::DataPtr, size_t>> memory;
};

Registry& registry() {
  static auto* const all = new Registry;  // never destroyed: packages may go after static objects
  return *all;
}

// A tensor, a number, or bytes, as a CPU tensor of one dimension; none where nothing was set.
using Arguments = std::array<c10::IValue, kBuffers>;

// What a thread encodes. On a Mac a command block is alone on its stream, so nothing of it is another thread's.
struct Block {
  std::unordered_map<Handle, Arguments> encoded;
  std::string failed;  // what the first call in it came to that failed
};
thread_local Block* the_block = nullptr;  // null outside of a command block
thread_local Block* outside = nullptr;    // never destroyed: its tensors may be Python's
thread_local std::string last_failure;

// While what it returns lives, the thread is in another block, or in none.
auto enter(Block* block) {
  return c10::make_scope_exit([former = std::exchange(the_block, block)] { the_block = former; });
}

std::unordered_map<Handle, Arguments>& encoded() {
  if (the_block == nullptr && outside == nullptr) {
    outside = new Block;
  }
  return (the_block != nullptr ? the_block : outside)->encoded;
}

Shared find(Handle handle, Kind kind) {
  const std::string what = kind == Kind::Library ? "the handle of a shader library" : "the handle of a kernel function";
  refuse_null(handle, what);
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().held.find(handle);
  if (found == registry().held.end() || found->second->kind != kind) {
    fail(what + " was deleted, or never was one. On a Mac this is not caught, and the process may crash");
  }
  return found->second;
}

// The arguments that were set since the kernel was last begun in this block.
Arguments& arguments_of(Handle handle, const std::string& name) {
  const auto found = encoded().find(handle);
  if (found == encoded().end()) {
    fail("the Metal kernel '" + name + "' was not begun by aoti_torch_mps_start_encoding. On a Mac the call has no effect, or the process crashes");
  }
  return found->second;
}

void set_argument(Handle handle, unsigned index, c10::IValue value) {
  const auto kernel = find(handle, Kind::Kernel);
  Arguments& arguments = arguments_of(handle, kernel->name);
  if (index >= kBuffers) {
    fail(
        "the Metal kernel '" + kernel->name + "' was given an argument " + std::to_string(index) +
        ", and Metal has the buffers 0 to 30. On a Mac this is not caught");
  }
  arguments[index] = std::move(value);
}

// Calls Python, and throws what it raises: the C interface hands on the text.
template <class Call>
PyObject* by_python(Call&& call) {
  PyObject* made = call();
  if (made == nullptr) {
    if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt) != 0) {
      PyErr_SetInterrupt();  // once more, for the program
    }
    raise_python_error();
  }
  return made;
}

template <class Call>
Shared hold(Kind kind, const char* name, Call&& call) {
  GilGuard gil;
  const NoDynamo none;
  return Shared(new Held{kind, name, by_python(call), {}});
}

// Enters it under a new handle.
template <class Opaque>
void give_out(Shared&& held, Opaque& handle) {
  handle = reinterpret_cast<Opaque>(++registry().last);
  registry().held.emplace(handle, std::move(held));
}

using Sizes = c10::ArrayRef<uint64_t>;

Sizes sizes(const uint64_t* first, size_t count) {
  return {first, first == nullptr ? 0 : count};
}

void dispatch(Handle handle, Sizes threads, std::optional<Sizes> group = std::nullopt) {
  const auto kernel = find(handle, Kind::Kernel);
  TORCH_CHECK(!threads.empty() && threads.size() < 4, "Dispatch dimensions must be less than 3 and non-empty");
  TORCH_CHECK(!group.has_value() || group->size() == threads.size(), "size and group_size must have same number of dimensions");
  c10::impl::GenericList arguments(c10::AnyType::get());
  const Arguments& given = arguments_of(handle, kernel->name);
  const auto last = std::find_if(given.rbegin(), given.rend(), [](const c10::IValue& one) { return !one.isNone(); });
  for (auto argument = given.begin(); argument != last.base(); ++argument) {
    arguments.push_back(*argument);
  }
  const auto list_of = [](const Sizes& sizes) { return to_python(std::vector<int64_t>(sizes.begin(), sizes.end())); };
  const auto none = enter(nullptr);  // a handler of a signal may launch shaders of its own meanwhile
  GilGuard gil;
  const NoDynamo no_dynamo;
  Py_DECREF(by_python([&] {
    PyObject* const size = group.has_value() ? list_of(*group) : Py_NewRef(Py_None);
    return PyObject_CallMethod(kernel->object, "launch_given", "NNN", to_python(arguments, /*as_given=*/true), list_of(threads), size);
  }));
}

// The bytes at an address that `aoti_torch_mps_malloc` gave, or that is a tensor's.
char* bytes_at(void* start, size_t offset, size_t count) {
  refuse_null(start, "the address of a buffer");
  std::lock_guard<std::mutex> lock(registry().mutex);
  const auto found = registry().memory.find(start);
  if (found != registry().memory.end() && (offset > found->second.second || count > found->second.second - offset)) {
    fail(
        "a copy of " + std::to_string(count) + " bytes at byte " + std::to_string(offset) + " goes past the end of a buffer of " +
        std::to_string(found->second.second) + " bytes. On a Mac this is not caught and touches other data");
  }
  return static_cast<char*>(start) + offset;
}

// Whether buffers have bytes, which then are this processor's.
bool has_bytes() {
  if (substrate().holds_data() && !substrate().alias_device().is_cpu()) {
    fail("buffers of compiled extensions are on this machine's CPU, and tensors on the NVIDIA GPU: use --substrate host");
  }
  return substrate().holds_data();
}

void note_failed(const std::string& kernel, const std::string& text) {
  delayed::note(Refusal::Index, mark_rule("metal::" + kernel), text);
}

// What leaves a function becomes a code, and a text for who asks. AOTInductor's code looks at neither, so both are kept as well.
template <class Body>
Code answer(Body&& body) {
  AOTI_TORCH_CONVERT_EXCEPTION_TO_ERROR_CODE({
    try {
      body();
    } catch (const std::exception& error) {
      last_failure = error.what();
      if (the_block != nullptr && the_block->failed.empty()) {
        the_block->failed = last_failure;
      }
      throw;
    }
  })
}

}  // namespace

// As in shim_mps.h, which the oldest releases have in another form.
#define ANYMPS_EXPORT extern "C" __attribute__((visibility("default")))
using Function = struct AOTIMetalKernelFunctionOpaque*;
using Library = struct AOTIMetalShaderLibraryOpaque*;
using Callback = void (*)(Function, void*);

ANYMPS_EXPORT Code aoti_torch_mps_create_shader_library(const char* source, Library* made) {
  return answer([&] {
    last_failure.clear();
    *made = nullptr;
    refuse_null(source, "the source of a shader library");
    Shared library = hold(Kind::Library, "", [&] { return PyObject_CallFunction(the_compile, "s", source); });
    std::lock_guard<std::mutex> lock(registry().mutex);
    give_out(std::move(library), *made);
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_delete_shader_library(Library handle) {
  return answer([&] {
    const Shared library = find(handle, Kind::Library);
    std::vector<Shared> kernels;  // let go of below, without the lock
    std::lock_guard<std::mutex> lock(registry().mutex);
    for (const auto& [name, kernel] : library->kernels) {
      kernels.push_back(std::move(registry().held.at(kernel)));
      registry().held.erase(kernel);
    }
    registry().held.erase(handle);
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_get_kernel_function(Library handle, const char* name, Function* made) {
  return answer([&] {
    *made = nullptr;
    const Shared library = find(handle, Kind::Library);
    refuse_null(name, "the name of a kernel");
    Shared kernel = hold(Kind::Kernel, name, [&] { return PyObject_CallMethod(library->object, "kernel", "s", name); });
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto known = library->kernels.find(name);
    if (known != library->kernels.end()) {
      *made = static_cast<Function>(const_cast<void*>(known->second));
    } else {
      give_out(std::move(kernel), *made);
      library->kernels.emplace(name, *made);
    }
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_start_encoding(Function handle) {
  return answer([&] {
    find(handle, Kind::Kernel);
    encoded()[handle] = Arguments();
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_set_arg_tensor(Function handle, unsigned index, AtenTensorHandle tensor) {
  return answer([&] {
    TORCH_CHECK(tensor != nullptr, "Tensor is null.");
    const at::Tensor& given = *torch::aot_inductor::tensor_handle_to_tensor_pointer(tensor);
    const bool number = given.device().is_cpu() && given.dim() == 0;
    TORCH_CHECK(given.is_mps() || number, "Passed CPU tensor to MPS op");
    set_argument(handle, index, number ? given.clone() : given);
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_set_arg_int(Function handle, unsigned index, int64_t value) {
  return answer([&] { set_argument(handle, index, value); });
}

ANYMPS_EXPORT Code torch_mps_set_arg_bytes(Function handle, unsigned index, const void* bytes, uint64_t size) {
  return answer([&] {
    TORCH_CHECK(bytes != nullptr, "Pointer is null.");
    constexpr auto limit = ". Metal setBytes only supports transient data up to 4 KB. Pass larger data as a tensor.";
    TORCH_CHECK(size > 0 && size <= kMostBytes, "size must be in (0, 4096], got ", size, limit);
    at::Tensor copy = at::detail::empty_cpu({static_cast<int64_t>(size)}, at::kByte);
    std::memcpy(copy.mutable_data_ptr(), bytes, size);
    set_argument(handle, index, copy);
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_dispatch_single(Function handle, uint64_t length) {
  return answer([&] { dispatch(handle, length); });
}

ANYMPS_EXPORT Code aoti_torch_mps_dispatch_single_with_group_size(Function handle, uint64_t length, uint64_t group) {
  return answer([&] { dispatch(handle, length, Sizes(group)); });
}

ANYMPS_EXPORT Code aoti_torch_mps_dispatch_array(Function handle, const uint64_t* lengths, size_t count) {
  return answer([&] { dispatch(handle, sizes(lengths, count)); });
}

ANYMPS_EXPORT Code aoti_torch_mps_dispatch_array_with_group_size(
    Function handle, const uint64_t* lengths, size_t count, const uint64_t* groups, size_t group_count) {
  return answer([&] { dispatch(handle, sizes(lengths, count), sizes(groups, group_count)); });
}

ANYMPS_EXPORT Code aoti_torch_mps_malloc(void** made, size_t nbytes) {
  return answer([&] {
    *made = nullptr;
    has_bytes();
    if (nbytes > 0) {
      at::DataPtr memory = mps_allocator()->allocate(nbytes);
      *made = memory.get();
      std::lock_guard<std::mutex> lock(registry().mutex);
      registry().memory.emplace(*made, std::pair(std::move(memory), nbytes));
    }
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_free(void* start) {
  return answer([&] {
    at::DataPtr memory;  // let go of below, without the lock
    std::lock_guard<std::mutex> lock(registry().mutex);
    const auto found = registry().memory.find(start);
    if (found != registry().memory.end()) {
      memory = std::move(found->second.first);
      registry().memory.erase(found);
    } else if (start != nullptr) {
      fail("memory is freed that aoti_torch_mps_malloc did not give, or that is free. On a Mac this is not caught, and the process may crash");
    }
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_memcpy(void* buffer, size_t offset, size_t from, size_t count, uint8_t* source) {
  return answer([&] {
    refuse_null(source, "the source of a copy");
    char* const target = bytes_at(buffer, offset, count);
    if (has_bytes()) {
      std::memcpy(target, source + from, count);
    }
  });
}

ANYMPS_EXPORT Code aoti_torch_mps_copy_buffer(void* source, void* target, size_t count, size_t from, size_t to) {
  return answer([&] {
    char *const read = bytes_at(source, from, count), *const written = bytes_at(target, to, count);
    if (has_bytes()) {
      std::memmove(written, read, count);
    }
  });
}

ANYMPS_EXPORT void aoti_torch_mps_shared_callback(Function handle, void* function) {
  (*static_cast<std::function<void(Function)>*>(function))(handle);
}

ANYMPS_EXPORT Code aoti_torch_mps_run_command_block(Function handle, Callback callback, void* data) {
  return answer([&] {
    if (handle == nullptr && !last_failure.empty()) {
      note_failed("unknown", last_failure);  // nobody looked why there is none
    }
    const Shared kernel = find(handle, Kind::Kernel);
    refuse_null(reinterpret_cast<const void*>(callback), "the callback of a command block");
    if (the_block != nullptr) {
      fail("a command block begins inside of another one. On a Mac it would wait for itself, and the process ends");
    }
    Block block;
    {
      const auto inside = enter(&block);
      callback(handle, data);
    }
    if (!block.failed.empty()) {
      note_failed(kernel->name, block.failed);  // nobody looked at a code in the block
    }
  });
}

}  // namespace extensions

void answer_extensions(PyObject* compile) {
  patches::keep(extensions::the_compile, compile);
}

}  // namespace anymps
