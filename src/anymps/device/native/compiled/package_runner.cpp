// Who loads and runs the programs of AOTInductor for mps: what only a macOS build of torch registers.
#include "compiled/compiled.h"

#include <c10/util/Exception.h>
#include <pybind11/stl.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <dlfcn.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>

namespace anymps::compiled {
namespace {

using torch::inductor::AOTIModelContainerRunner;

class PackageRunner final : public AOTIModelContainerRunner {
 public:
  PackageRunner(const std::string& path, size_t models, bool single_threaded)
      : AOTIModelContainerRunner(path, models, "mps", "", single_threaded) {}
};

bool begins_with(const std::string& path, const char* magic) {
  char bytes[4] = {};
  std::ifstream(path, std::ios::binary).read(bytes, sizeof bytes);
  return std::memcmp(bytes, magic, sizeof bytes) == 0;
}

// The loader has refused: why, and what to do.
[[noreturn]] void refuse_program(const std::string& path, const std::string& said) {
  constexpr const char* again = "make it again here with torch._inductor.aoti_compile_and_package";
  if (begins_with(path, "\xcf\xfa\xed\xfe")) {
    C10_THROW_ERROR(Error, c10::str("anymps: the compiled program is one for macOS, which this machine cannot load: ", again));
  }
  constexpr const char* undefined = "undefined symbol: ";
  const size_t at = said.find(undefined);
  if (at != std::string::npos) {
    const size_t begin = at + std::strlen(undefined);
    const std::string symbol = said.substr(begin, said.find_first_of("\n ", begin) - begin);
    C10_THROW_ERROR(
        Error, c10::str("anymps: the compiled program calls ", symbol, ", which torch " TORCH_VERSION " does not have: ", again));
  }
  C10_THROW_ERROR(Error, c10::str("anymps: the compiled program cannot be loaded (", said.substr(0, said.find('\n')), "): ", again));
}

std::unique_ptr<PackageRunner> load(const std::string& path, size_t models, bool single_threaded) {
  // What the program calls is looked up in libraries that are open to all; Python has opened ours to itself.
  static void* const opened = [] {
    Dl_info ours;
    return dladdr(reinterpret_cast<void*>(&install_runner), &ours) != 0
        ? dlopen(ours.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_GLOBAL)
        : nullptr;
  }();
  TORCH_INTERNAL_ASSERT(opened != nullptr);
  if (void* program = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    auto runner = std::make_unique<PackageRunner>(path, models, single_threaded);
    dlclose(program);
    return runner;
  }
  refuse_program(path, dlerror());
}

std::unique_ptr<AOTIModelContainerRunner> load_from_package(
    const std::string& path, size_t models, const std::string& device, const std::string&, const bool single_threaded) {
  TORCH_CHECK(device == "mps", "Incorrect device passed to aoti_runner_mps");  // torch's own words
  return load(path, models, single_threaded);
}

using Constants = std::unordered_map<std::string, at::Tensor>;

}  // namespace

void install_runner(PyObject* aoti) {
  auto& runners = torch::inductor::getAOTIModelRunnerRegistry();
  runners.erase("cuda");  // a Mac has none
  runners["mps"] = &load_from_package;
  using py::arg;
  py::class_<PackageRunner>(py::handle(aoti), "AOTIModelContainerRunnerMps", py::module_local())
      .def(py::init([](const std::string& path, int models) { return load(path, models, false); }))
      .def("run", &PackageRunner::run, arg("inputs"), arg("stream_handle") = nullptr)
      .def("get_call_spec", &PackageRunner::get_call_spec)
      .def("get_constant_names_to_original_fqns", &PackageRunner::getConstantNamesToOriginalFQNs)
      .def("get_constant_names_to_dtypes", &PackageRunner::getConstantNamesToDtypes)
      .def("extract_constants_map", &PackageRunner::extract_constants_map)
      .def(
          "update_constant_buffer", py::overload_cast<Constants&, bool, bool, bool>(&PackageRunner::update_constant_buffer),
          arg("tensor_map"), arg("use_inactive"), arg("validate_full_updates"), arg("user_managed") = false)
      .def("swap_constant_buffer", &PackageRunner::swap_constant_buffer)
      .def("free_inactive_constant_buffer", &PackageRunner::free_inactive_constant_buffer);
}

}  // namespace anymps::compiled
