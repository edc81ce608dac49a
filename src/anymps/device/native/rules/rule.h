// What the device knows of one operator overload: handed over by the Python side (anymps.rules), fixed at enable time.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <anymps/vocabulary.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace anymps {

// What a call of an operator must be looked at for, tensor by tensor or by its other arguments: bits of `Rule::flags` beside
// those of `Trait`, set here.
enum Look : uint32_t {
  kWaitsOnMask = 1u << 16,      // waits only if an index is a bool or uint8 mask
  kWaitsOnScalar = 1u << 17,    // waits only if a 0-dim operand lies on mps
  kWaitsOnZeroDim = 1u << 18,   // waits only if the first tensor is 0-dim
  kWaitsOnArguments = 1u << 19, // waits only if `waits_if` says so
};
constexpr uint32_t kWaitsOnTensor = kWaitsOnMask | kWaitsOnScalar | kWaitsOnZeroDim;
constexpr uint32_t kConditionalWait = kWaitsOnTensor | kWaitsOnArguments;

// A dtype that the first tensor of a call may not have, and what MPS says then.
struct RefusedDtype {
  uint8_t error;  // ErrorClass
  std::string text;
};

struct OperatorHazards;  // hazards.cpp
// What the device says of a bad index (anymps/rules/_device_checks.py); an empty text: it does not look.
struct IndexCheck {
  std::string layout, text, strided;
};

// What torch.use_deterministic_algorithms alerts about (anymps/rules/_determinism.py); an empty name: MPS is silent where
// the CPU kernel alerts.
struct Alert {
  std::string name;
  bool floating = false;
  std::string argument;
  std::vector<std::string> values;
};

// The names that an operator asks Metal kernels for, and what no kernel has (anymps/rules/_metal_dtypes.py).
struct KernelName {
  enum class Form : uint8_t { First, Arithmetic, Comparison, Quotient, Fill, Graph };
  uint64_t missing = 0;  // bit t: ScalarType t
  Form form = Form::First;
  std::string name;
  std::string cast;  // of operands of two dtypes
};

struct Rule;
// Refuses what the operator's kernel on mps does not take, by more than a dtype (limits.cpp). The arguments are the
// host's.
using ArgumentCheck = void (*)(const Rule&, c10::ArrayRef<c10::IValue> arguments);

// Changes host arguments that the CPU kernel refuses by their values and MPS takes (limit_checks.cpp). They begin at
// `first`.
using ArgumentChange = void (*)(const Rule&, std::vector<c10::IValue>& stack, size_t first);

// Computes a call on host arguments, which begin at `first`, and takes them off the stack: where the CPU's kernel gives other
// numbers (fused_steps.cpp). False: the CPU's kernel computes it.
using OwnComputation = bool (*)(const Rule&, std::vector<c10::IValue>& stack, size_t first);

// On what it depends whether an operator waits: a bit of `Look`, and what answers for kWaitsOnArguments.
struct WaitCondition {
  uint32_t look = 0;
  bool (*waits)(c10::ArrayRef<c10::IValue> arguments) = nullptr;
};
// The condition of that name in anymps.rules.When (wait_conditions.cpp). Raises for a name that is not there.
const WaitCondition& wait_condition(const std::string& name);
// How an operator with a condition on its tensors waits for this one at that place among its arguments.
Wait wait_for_tensor(const Rule& rule, const at::Tensor& tensor, size_t place);

// The places of the arguments that a signature's form tells of; -1 for none.
struct FormArguments {
  int axes = -1, stride = -1, dilation = -1, groups = -1;
  bool any() const {
    return axes >= 0 || stride >= 0;
  }
};

// How the work of a call is told from its tensors: by the shape that they broadcast to; by their elements alone, as the
// vectors of a norm stand for its channels; or as a product of two of them, whose other tensors are added to its result.
enum class Labor : uint8_t { Broadcast, Elements, Product, Convolution };

struct LaborOfCall {
  Labor kind = Labor::Broadcast;
  uint8_t left = 0, right = 0;  // of products: the factors' places among the tensors
};

struct Rule {
  Rule(c10::OperatorHandle handle, std::string name);

  c10::OperatorHandle op;
  // What each call asks for is close together.
  uint32_t id = 0;            // index in the list of all rules, the tape's operator number
  uint32_t flags = 0;         // Trait, and Look
  const OperatorHazards* hazards = nullptr;  // known faults of the real kernel that a call must be looked at for
  const Alert* alert = nullptr;
  uint64_t refused = 0;       // bit t: MPS refuses ScalarType t, which the CPU computes
  uint64_t widened = 0;       // bit t: MPS computes ScalarType t, which the CPU refuses; a wider type stands in
  FormArguments form;         // of what a recording tells beside the sizes of tensors
  LaborOfCall labor;          // what a CPU has to do for it
  Fate fate = Fate::Native;
  Wait wait = Wait::None;
  uint8_t family = 0;         // which text a CPU tensor among mps tensors gets (anymps/rules/_encoding.py, Family)
  bool offered = false;       // a kernel of PyTorch's own may compute it here (launches.h)
  KernelName kernel;
  std::string name;           // "aten::add.Tensor"
  bool listed = false;        // has a row in the rules
  bool keeps_wide = false;    // a widened call of integers or bools is done in int64, and its results stay so
  bool always_wide = false;   // widened even where the CPU has the dtype, as it keeps too few digits on the way
  uint64_t writes = 0;        // bit i: argument i is written (in place or out=)
  uint64_t optional_lists = 0;  // bit i: argument i is a list of optional tensors
  int generator_argument = -1;
  std::unordered_map<int, RefusedDtype> refusals;  // by ScalarType
  const IndexCheck* indices = nullptr;
  ArgumentCheck check = nullptr;
  ArgumentChange change = nullptr;
  OwnComputation own = nullptr;
  bool (*waits_if)(c10::ArrayRef<c10::IValue> arguments) = nullptr;
};

}  // namespace anymps
