// A compiled extension on torch's stable ABI, which launches Metal shaders as those of macOS do: by `aoti_torch_mps_*`.
#include <torch/csrc/inductor/aoti_torch/c/shim_mps.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// Torch 2.14, torch/csrc/stable/c/shim.h.
extern "C" AOTITorchError torch_mps_set_arg_bytes(AOTIMetalKernelFunctionHandle, unsigned, const void*, uint64_t);

namespace {

using torch::stable::Tensor;
using Function = AOTIMetalKernelFunctionHandle;
using Library = AOTIMetalShaderLibraryHandle;
#define CHECK STABLE_TORCH_ERROR_CODE_CHECK

struct Deleter {
  void operator()(AOTIMetalShaderLibraryOpaque* library) const {
    aoti_torch_mps_delete_shader_library(library);
  }
};
using Owned = std::unique_ptr<AOTIMetalShaderLibraryOpaque, Deleter>;

Owned compile(const std::string& source) {
  Library library = nullptr;
  CHECK(aoti_torch_mps_create_shader_library(source.c_str(), &library));
  return Owned(library);
}

Function kernel_of(const Owned& library, const std::string& name) {
  Function function = nullptr;
  CHECK(aoti_torch_mps_get_kernel_function(library.get(), name.c_str(), &function));
  return function;
}

void run(Function function, std::function<void(Function)> encode) {
  CHECK(aoti_torch_mps_run_command_block(function, &aoti_torch_mps_shared_callback, &encode));
}

// Tensors come first, then integers, then the bytes of a CPU tensor, if it has any. No group: the one that torch chooses.
void launch(
    std::string source,
    std::string name,
    std::vector<Tensor> tensors,
    std::vector<int64_t> integers,
    Tensor bytes,
    std::vector<int64_t> threads,
    std::vector<int64_t> group) {
  const Owned library = compile(source);
  const std::vector<uint64_t> lengths(threads.begin(), threads.end()), groups(group.begin(), group.end());
  run(kernel_of(library, name), [&](Function function) {
    unsigned index = 0;
    CHECK(aoti_torch_mps_start_encoding(function));
    for (const Tensor& tensor : tensors) {
      CHECK(aoti_torch_mps_set_arg_tensor(function, index++, tensor.get()));
    }
    for (const int64_t integer : integers) {
      CHECK(aoti_torch_mps_set_arg_int(function, index++, integer));
    }
    if (bytes.numel() > 0) {
      CHECK(torch_mps_set_arg_bytes(function, index++, bytes.const_data_ptr(), bytes.numel()));
    }
    if (lengths.size() == 1 && groups.empty()) {
      CHECK(aoti_torch_mps_dispatch_single(function, lengths[0]));
    } else if (lengths.size() == 1) {
      CHECK(aoti_torch_mps_dispatch_single_with_group_size(function, lengths[0], groups[0]));
    } else if (groups.empty()) {
      CHECK(aoti_torch_mps_dispatch_array(function, lengths.data(), lengths.size()));
    } else {
      CHECK(aoti_torch_mps_dispatch_array_with_group_size(function, lengths.data(), lengths.size(), groups.data(), groups.size()));
    }
  });
}

// `out[i] += i` over the tensor.
const char* const kCount = "kernel void count(device float* out, uint i [[thread_position_in_grid]]) { out[i] += i; }";

void encode_count(Function function, const Tensor& out) {
  CHECK(aoti_torch_mps_start_encoding(function));
  CHECK(aoti_torch_mps_set_arg_tensor(function, 0, out.get()));
  CHECK(aoti_torch_mps_dispatch_single(function, out.numel()));
}

// Some threads of C++ launch at once.
void count_in_threads(Tensor out, int64_t count) {
  const Owned library = compile(kCount);
  const Function function = kernel_of(library, "count");
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      const Tensor part = torch::stable::select(out, 0, i);
      run(function, [&](Function begun) { encode_count(begun, part); });
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// The same numbers, by way of two buffers of the interface's own.
Tensor through_buffers(Tensor numbers, Tensor out) {
  void *first = nullptr, *second = nullptr, *target = nullptr;
  const size_t nbytes = numbers.numel() * sizeof(float);
  auto* const source = const_cast<uint8_t*>(static_cast<const uint8_t*>(numbers.const_data_ptr()));
  CHECK(aoti_torch_mps_malloc(&first, nbytes));
  CHECK(aoti_torch_mps_malloc(&second, 2 * nbytes));
  CHECK(aoti_torch_mps_memcpy(first, nbytes / 2, 0, nbytes / 2, source));
  CHECK(aoti_torch_mps_memcpy(first, 0, nbytes / 2, nbytes / 2, source));
  CHECK(aoti_torch_mps_copy_buffer(first, second, nbytes, 0, nbytes));
  CHECK(aoti_torch_get_data_ptr(out.get(), &target));
  CHECK(aoti_torch_mps_copy_buffer(second, target, nbytes, nbytes, 0));
  CHECK(aoti_torch_mps_free(first));
  CHECK(aoti_torch_mps_free(second));
  return out;
}

// What a call comes to that is wrong in the way `how`: the text, or nothing if it passes.
std::string misuse(std::string how, Tensor given) {
  AOTITorchError code = 0;
  Owned library = compile(kCount);
  const Function function = kernel_of(library, "count");
  const auto encoded = [&](std::function<AOTITorchError(Function)> call) {
    run(function, [&](Function begun) {
      CHECK(aoti_torch_mps_start_encoding(begun));
      code = call(begun);
    });
  };
  void* buffer = nullptr;
  uint8_t bytes[8] = {};
  if (how == "null function") {
    code = aoti_torch_mps_start_encoding(nullptr);
  } else if (how == "null library") {
    Function none = nullptr;
    code = aoti_torch_mps_get_kernel_function(nullptr, "count", &none);
  } else if (how == "null source") {
    Library none = nullptr;
    code = aoti_torch_mps_create_shader_library(nullptr, &none);
  } else if (how == "null callback") {
    code = aoti_torch_mps_run_command_block(function, nullptr, nullptr);
  } else if (how == "null tensor") {
    encoded([&](Function begun) { return aoti_torch_mps_set_arg_tensor(begun, 0, nullptr); });
  } else if (how == "tensor") {
    encoded([&](Function begun) { return aoti_torch_mps_set_arg_tensor(begun, 0, given.get()); });
  } else if (how == "index") {
    encoded([&](Function begun) { return aoti_torch_mps_set_arg_tensor(begun, 31, given.get()); });
  } else if (how == "null bytes") {
    encoded([&](Function begun) { return torch_mps_set_arg_bytes(begun, 0, nullptr, 4); });
  } else if (how == "many bytes") {
    const std::vector<uint8_t> many(4097);
    encoded([&](Function begun) { return torch_mps_set_arg_bytes(begun, 0, many.data(), many.size()); });
  } else if (how == "no bytes") {
    encoded([&](Function begun) { return torch_mps_set_arg_bytes(begun, 0, bytes, 0); });
  } else if (how == "four dimensions") {
    const std::vector<uint64_t> lengths(4, 1);
    encoded([&](Function begun) { return aoti_torch_mps_dispatch_array(begun, lengths.data(), 4); });
  } else if (how == "null lengths") {
    encoded([&](Function begun) { return aoti_torch_mps_dispatch_array(begun, nullptr, 1); });
  } else if (how == "another group") {
    const std::vector<uint64_t> lengths(2, 1);
    encoded([&](Function begun) { return aoti_torch_mps_dispatch_array_with_group_size(begun, lengths.data(), 2, lengths.data(), 1); });
  } else if (how == "large group") {
    encoded([&](Function begun) { return aoti_torch_mps_dispatch_single_with_group_size(begun, 4096, 1025); });
  } else if (how == "nothing given") {
    encoded([&](Function begun) { return aoti_torch_mps_dispatch_single(begun, 4); });
  } else if (how == "not begun") {
    run(function, [&](Function begun) { code = aoti_torch_mps_dispatch_single(begun, 4); });
  } else if (how == "begun in another block") {
    run(function, [&](Function begun) { encode_count(begun, given); });
    run(function, [&](Function begun) { code = aoti_torch_mps_dispatch_single(begun, 4); });
  } else if (how == "block in a block") {
    encoded([&](Function begun) { return aoti_torch_mps_run_command_block(begun, &aoti_torch_mps_shared_callback, nullptr); });
  } else if (how == "deleted") {
    library.reset();
    const Owned again = compile(kCount);  // whose memory may be where the other's was
    kernel_of(again, "count");
    code = aoti_torch_mps_start_encoding(function);
  } else if (how == "deleted twice") {
    const Library handle = library.release();
    CHECK(aoti_torch_mps_delete_shader_library(handle));
    code = aoti_torch_mps_delete_shader_library(handle);
  } else if (how == "library as function") {
    code = aoti_torch_mps_start_encoding(reinterpret_cast<Function>(library.get()));
  } else if (how == "freed twice") {
    CHECK(aoti_torch_mps_malloc(&buffer, 8));
    CHECK(aoti_torch_mps_free(buffer));
    code = aoti_torch_mps_free(buffer);
  } else if (how == "copy past the end") {
    CHECK(aoti_torch_mps_malloc(&buffer, 8));
    code = aoti_torch_mps_memcpy(buffer, 4, 0, 8, bytes);
    CHECK(aoti_torch_mps_free(buffer));
  } else if (how == "null copy") {
    code = aoti_torch_mps_copy_buffer(nullptr, bytes, 8, 0, 0);
  } else if (how == "free nothing") {
    code = aoti_torch_mps_free(nullptr);
  } else if (how == "callback throws") {
    std::function<void(Function)> thrower = [](Function) { throw std::runtime_error("of the callback"); };
    code = aoti_torch_mps_run_command_block(function, &aoti_torch_mps_shared_callback, &thrower);
  } else {
    throw std::runtime_error("no such misuse: " + how);
  }
  return code == 0 ? "" : torch_exception_get_what_without_backtrace();
}

// As the code that AOTInductor writes: nobody looks at a code.
void look_at_nothing(std::string source, Tensor out) {
  Library library = nullptr;
  Function function = nullptr;
  aoti_torch_mps_create_shader_library(source.c_str(), &library);
  aoti_torch_mps_get_kernel_function(library, "count", &function);
  std::function<void(Function)> encode = [&](Function begun) {
    aoti_torch_mps_start_encoding(begun);
    aoti_torch_mps_set_arg_tensor(begun, 0, out.get());
    aoti_torch_mps_dispatch_single(begun, out.numel());
  };
  aoti_torch_mps_run_command_block(function, &aoti_torch_mps_shared_callback, &encode);
}

// Sizes reach the operators below in boxes.
Tensor flat(Tensor given) {
  Tensor copy = torch::stable::empty({given.size(0), given.size(1)}, given.scalar_type(), std::nullopt, given.device());
  return torch::stable::view(torch::stable::copy_(copy, given), {given.numel()});
}

}  // namespace

STABLE_TORCH_LIBRARY(anymps_tests, m) {
  m.def("launch(str source, str name, Tensor[] tensors, int[] integers, Tensor bytes, int[] threads, int[] group) -> ()");
  m.def("count_in_threads(Tensor(a!) out, int count) -> ()");
  m.def("through_buffers(Tensor numbers, Tensor(a!) out) -> Tensor(a!)");
  m.def("misuse(str how, Tensor given) -> str");
  m.def("look_at_nothing(str source, Tensor(a!) out) -> ()");
  m.def("flat(Tensor given) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(anymps_tests, CompositeExplicitAutograd, m) {
  m.impl("launch", TORCH_BOX(&launch));
  m.impl("count_in_threads", TORCH_BOX(&count_in_threads));
  m.impl("through_buffers", TORCH_BOX(&through_buffers));
  m.impl("misuse", TORCH_BOX(&misuse));
  m.impl("look_at_nothing", TORCH_BOX(&look_at_nothing));
  m.impl("flat", TORCH_BOX(&flat));
}
