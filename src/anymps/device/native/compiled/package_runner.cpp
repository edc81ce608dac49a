// Who loads and runs the programs of AOTInductor for mps: what only a macOS build of torch registers.
#include "compiled/compiled.h"

#ifndef __APPLE__

#include <c10/util/Exception.h>
#include <pybind11/stl.h>
#include <torch/csrc/inductor/aoti_runner/model_container_runner.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include <dlfcn.h>
#include <elf.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace anymps::compiled {
namespace {

using torch::inductor::AOTIModelContainerRunner;

class PackageRunner final : public AOTIModelContainerRunner {
 public:
  PackageRunner(const std::string& path, size_t models, bool single_threaded)
      : AOTIModelContainerRunner(path, models, "mps", "", single_threaded) {}

 protected:
  // A thread may wait for another that runs the program, and launches of shaders need Python.
  std::vector<at::Tensor> run_impl(std::vector<AtenTensorHandle>& inputs, void* stream) override {
    std::optional<py::gil_scoped_release> released;
    if (PyGILState_Check() != 0) {
      released.emplace();
    }
    return AOTIModelContainerRunner::run_impl(inputs, stream);
  }
};

std::string gpu_refusal;  // empty where programs can run

[[noreturn]] void refuse_program(const std::string& why) {
  C10_THROW_ERROR(
      Error, "anymps: the compiled program " + why + ": make it again here with torch._inductor.aoti_compile_and_package");
}

// What the system's loader would not say so well: of a file that was cut short it reads beyond the end, which ends the process.
void check_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const auto size = static_cast<uint64_t>(file.tellg());
  Elf64_Ehdr head = {};
  file.seekg(0).read(reinterpret_cast<char*>(&head), sizeof head);
  if (std::memcmp(head.e_ident, "\xcf\xfa\xed\xfe", 4) == 0) {
    refuse_program("is one for macOS, which this machine cannot load");
  }
  if (file && std::memcmp(head.e_ident, ELFMAG, SELFMAG) == 0 && size < head.e_shoff + uint64_t{head.e_shnum} * head.e_shentsize) {
    refuse_program("is not whole");
  }
}

[[noreturn]] void refuse_unloaded(const std::string& said) {
  constexpr const char* undefined = "undefined symbol: ";
  const size_t at = said.find(undefined);
  if (at == std::string::npos) {
    refuse_program("cannot be loaded (" + said + ")");
  }
  refuse_program("calls " + said.substr(at + std::strlen(undefined)) + ", which torch " TORCH_VERSION " does not have");
}

std::unique_ptr<PackageRunner> load(const std::string& path, size_t models, bool single_threaded) {
  TORCH_CHECK(gpu_refusal.empty(), gpu_refusal);
  check_file(path);
  if (void* program = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    auto runner = std::make_unique<PackageRunner>(path, models, single_threaded);
    dlclose(program);
    return runner;
  }
  refuse_unloaded(dlerror());
}

std::unique_ptr<AOTIModelContainerRunner> load_from_package(
    const std::string& path, size_t models, const std::string& device, const std::string&, const bool single_threaded) {
  TORCH_CHECK(device == "mps", "Incorrect device passed to aoti_runner_mps");  // torch's own words
  return load(path, models, single_threaded);
}

using Constants = std::unordered_map<std::string, at::Tensor>;

}  // namespace

void install_runner(PyObject* aoti, const std::string& refusal) {
  gpu_refusal = refusal;
  auto& runners = torch::inductor::getAOTIModelRunnerRegistry();
  runners.erase("cuda");  // as on a Mac
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

#else

namespace anymps::compiled {
void install_runner(PyObject*, const std::string&) {}
}  // namespace anymps::compiled

#endif
