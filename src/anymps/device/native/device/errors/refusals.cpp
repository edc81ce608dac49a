// Raising the real backend's errors, and the text a tensor on another device gets by operator family.
#include "device/errors/refusals.h"

#include "recorder/recorder.h"

namespace anymps {

static thread_local uint64_t refusal_count = 0;

uint64_t refusals_of_this_thread() {
  return refusal_count;
}

[[noreturn]] static void raise(ErrorClass error, const std::string& message) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  switch (error) {
    case ErrorClass::Type: throw c10::TypeError(here, message);
    case ErrorClass::NotImplemented: throw c10::NotImplementedError(here, message);
    case ErrorClass::Value: throw c10::ValueError(here, message);
    case ErrorClass::Index: throw c10::IndexError(here, message);
    case ErrorClass::Accelerator: throw c10::AcceleratorError(here, 1, message);  // the code that MPSStream.mm gives
    case ErrorClass::Runtime: break;
  }
  throw c10::Error(here, message);
}

void refuse(Refusal kind, const Rule& rule, ErrorClass error, const std::string& message, const at::Tensor& culprit) {
  ++refusal_count;
  if (told_by_device()) {
    note_refusal(kind, rule, error, message, culprit);
  }
  raise(error, message);
}

// This file lies in a folder of its own below the one of all sources.
static std::string folder_of_all_sources() {
  const std::string wing = std::string(__FILE__).substr(0, std::string(__FILE__).find_last_of("/\\"));
  return wing.substr(0, wing.find_last_of("/\\") + 1);
}

// Torch's headers are compiled into the core, so an assertion in one of them is about what the core did; the wheel's own files
// have the names that they had where it was built.
void rethrow_as_ours(const c10::Error& error) {
  static const std::string mark = " INTERNAL ASSERT FAILED at \"";
  static const std::string here = folder_of_all_sources();
  const std::string& text = error.msg();
  const size_t at = text.find(mark);
  const size_t end = at == std::string::npos ? at : text.find('"', at + mark.size());
  if (end == std::string::npos) {
    throw;
  }
  const std::string file = text.substr(at + mark.size(), end - at - mark.size());
  if (file.find("/torch/include/") == std::string::npos && file.compare(0, here.size(), here) != 0) {
    throw;
  }
  static const std::string request = ", please report a bug to PyTorch.";
  std::string said = text;
  const size_t asks = said.find(request, end);
  if (asks != std::string::npos) {
    said.replace(asks, request.size(), ".");
  }
  const c10::SourceLocation location{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  throw c10::Error(
      location,
      "anymps: an assertion of its native core failed. This is a bug of anymps, not of PyTorch or of your code. Please report it to "
      "anymps, with this text and the output of `anymps doctor`: " +
          said);
}

void refuse_limit(const Rule& rule, const char* name, const at::Tensor& culprit) {
  const auto limit = texts().limits.find(name);
  if (limit != texts().limits.end()) {
    refuse(Refusal::Argument, rule, static_cast<ErrorClass>(limit->second.error), limit->second.text, culprit);
  }
}

namespace {

const std::string kSparseFamily = "sparse";
const char* kTwoDevices = "Expected all tensors to be on the same device, but found at least two devices, mps:0 and ";

std::string argument_name(const Rule& rule, size_t position) {
  const auto& arguments = rule.op.schema().arguments();
  return position < arguments.size() ? arguments[position].name() : "";
}

// checkAllSameGPU (torch 2.13, aten/src/ATen/TensorUtils.cpp).
std::string same_gpu_text(const Rule& rule, const std::string& argument, size_t position) {
  const auto check = texts().same_gpu.find(base_name(rule.name));
  if (check != texts().same_gpu.end()) {
    const auto known = check->second.find(argument);
    if (known != check->second.end()) {
      return known->second;
    }
  }
  return "Tensor for argument #" + std::to_string(position + 1) + " '" + argument +
      "' is on CPU, but expected it to be on GPU (while checking arguments for " + base_name(rule.name) + ")";
}

}  // namespace

// Texts by family: torch 2.13, see anymps/rules/texts for their source.
void check_foreign(const Rule& rule, const at::Tensor& tensor, size_t position, int& cpu_scalars, bool sparse) {
  const bool scalar = tensor.is_cpu() && tensor.dim() == 0;
  if ((rule.flags & kCpuIndexOk) && tensor.is_cpu() && (position == 1 || scalar)) {
    return;  // an index, or the one value that index_put_ moves over (torch 2.13, TensorAdvancedIndexing.cpp)
  }
  if (scalar && tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    return;  // a Python number, which torch has put into a tensor on its way here
  }
  const bool written = position < 64 && ((rule.writes >> position) & 1);  // an iterator takes no result elsewhere
  if (scalar && (rule.flags & kScalarCpuOk) && !written) {
    if (++cpu_scalars > 1) {
      refuse(Refusal::Device, rule, ErrorClass::Runtime, "Trying to pass too many CPU scalars to non-CPU kernel!", tensor);
    }
    return;
  }
  std::string message;
  const std::string device = tensor.device().str();
  const std::string& family = sparse ? kSparseFamily : family_name(rule.family);
  if (tensor.is_cpu() && family == "none") {
    return;
  }
  const std::string name = argument_name(rule, position);
  if ((rule.flags & kCpuIndexOk) && position == 0 && tensor.is_cpu()) {  // a CPU tensor indexed with mps indices (pytorch issue 85450)
    message = "indices should be either on cpu or on the same device as the indexed tensor (" + device + ")";
    refuse(Refusal::Device, rule, ErrorClass::Runtime, message, tensor);
  }
  if (family == "convolution") {
    // A convolution chooses its backend by the input's device: an input on the CPU ends in the slow CPU path's refusal,
    // weights on the CPU in the mps path's (torch 2.13, Convolution.cpp and Convolution.mm).
    message = position == 0
        ? "slow_conv2d_forward_mps: input(device='" + device + "') and weight(device=mps:0')  must be on the same device"
        : "Input type (MPS" + std::string(c10::toString(tensor.scalar_type())) + "Type) and " + name + " type (" + tensor.toString() +
            ") should be the same";
  } else if (family == "same_gpu") {
    message = same_gpu_text(rule, name, position);
  } else if (family == "linear") {
    message = "Tensor for argument " + name + " is on " + device + " but expected on mps";
  } else if (family == "placeholder") {
    message = "Placeholder storage has not been allocated on MPS device!";
  } else if (family == "metal") {
    if (scalar) {
      return;  // becomes a constant of the kernel
    }
    message = "Passed CPU tensor to MPS op";
  } else if (family == "dot") {
    message = "Expected all tensors to be on the same device. Found: mps:0, " + device;
  } else if (family == "masked_fill") {
    message = "expected self and mask to be on the same device, but got mask on " + device + " and self on mps:0";
  } else if (family == "gradscaler") {
    message = name == "self" ? "one of scaled_grads was not a MPS tensor." : name + " must be a MPS tensor.";
  } else if (family == kSparseFamily) {
    message = base_name(rule.name) + ": expected '" + name + "' to be MPS, but got " + device;
  } else {
    message = kTwoDevices + device + "!";
  }
  refuse(Refusal::Device, rule, ErrorClass::Runtime, message, tensor);
}

static void raise_fault(const HazardRow& row) {
  if (!row.text.empty()) {
    raise(row.error, row.text);
  }
}

void meet_hazard(const HazardRow* row, const char* call) {
  if (row == nullptr) {
    return;
  }
  if (told_by_device()) {
    note_fault(*row, call);
  }
  raise_fault(*row);
}

void meet_hazards(const Rule& rule, c10::ArrayRef<Operand> operands) {
  if (const HazardRow* row = told_by_device() ? note_faults(rule, operands) : refused_by_hazard(rule, operands)) {
    raise_fault(*row);
  }
}

void check_hazards(const Rule& rule, c10::ArrayRef<c10::IValue> arguments) {
  meet_hazards(rule, Unboxing(arguments).operands());
}

}  // namespace anymps
