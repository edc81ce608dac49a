// What the device knows of one operator overload: handed over by the Python side (anymps.rules), fixed at enable time.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace anymps {

// The numbers below are those of anymps/rules/_encoding.py.
enum class Fate : uint8_t { Native = 0, Fallback = 1, AlwaysFallback = 2, Missing = 3, Refused = 4, Copy = 5, Wait = 6, Mark = 7 };

enum RuleFlag : uint32_t {
  kScalarCpuOk = 1,     // one 0-dim CPU tensor may stand among the inputs
  kCpuIndexOk = 2,      // CPU index tensors are moved over by the operator itself
  kRandom = 4,          // draws from the device's generator
  kView = 8,            // returns a view of its input
  kWaitsOnMask = 16,    // waits only if an index is a bool or uint8 mask
  kWaitsOnScalar = 32,  // waits only if a 0-dim operand lies on mps
  kWaitsOnZeroDim = 64, // waits only if the first tensor is 0-dim
  kWaitsOnOption = 128, // waits depending on an optional argument
  kDense = 256,         // has a kernel for the MPS dispatch key
  kSparse = 512,        // has a kernel for the SparseMPS dispatch key
  kFromPython = 1024,   // torch registers the kernel itself, from Python
  kRefusesDtypes = 2048,  // set here: `refused` is not empty
};
// What a call must be looked at for, tensor by tensor; then also by its other arguments.
constexpr uint32_t kWaitsOnTensor = kWaitsOnMask | kWaitsOnScalar | kWaitsOnZeroDim;
constexpr uint32_t kConditionalWait = kWaitsOnTensor | kWaitsOnOption;

enum class Wait : uint8_t { None = 0, Item, CopyToMps, CopyToCpu, Synchronize, Event, EmptyCache, Fallback, InsideOperator };
enum class Direction : uint8_t { None = 0, CpuToMps, MpsToCpu, MpsToMps };
enum class Phase : uint8_t { Other = 0, Batch, Move, Forward, LossRead, Backward, Optimizer };

// What a refusal is about, and the exception it is raised as.
enum class Refusal : uint8_t { Missing, Float64, Complex128, Dtype, Device, Generator, Rank, Layout, Memory, Distributed, Argument, Index, Determinism };
enum class ErrorClass : uint8_t { Runtime, Type, NotImplemented, Value, Index, Accelerator };

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

struct Rule;
// Refuses what the operator's kernel on mps does not take, by more than a dtype (limits.cpp). The arguments are the
// host's.
using ArgumentCheck = void (*)(const Rule&, c10::ArrayRef<c10::IValue> arguments);

// Changes host arguments that the CPU kernel refuses by their values and MPS takes (zero_divisors.cpp). They begin at
// `first`.
using ArgumentChange = void (*)(std::vector<c10::IValue>& stack, size_t first);

// Whether a call with these arguments makes the host wait (wait_conditions.cpp); nullptr: no condition of that kind.
using WaitCondition = bool (*)(c10::ArrayRef<c10::IValue> arguments);
WaitCondition wait_condition(const std::string& name);

struct Rule {
  Rule(c10::OperatorHandle handle, std::string name);

  c10::OperatorHandle op;
  std::string name;           // "aten::add.Tensor"
  uint32_t id = 0;            // index in the list of all rules, the tape's operator number
  Fate fate = Fate::Native;
  uint8_t family = 0;         // which text a CPU tensor among mps tensors gets (anymps/rules/_encoding.py, Family)
  uint32_t flags = 0;
  Wait wait = Wait::None;
  uint64_t writes = 0;        // bit i: argument i is written (in place or out=)
  uint64_t optional_lists = 0;  // bit i: argument i is a list of optional tensors
  int generator_argument = -1;
  uint64_t refused = 0;       // bit t: MPS refuses ScalarType t, which the CPU computes
  uint64_t widened = 0;       // bit t: MPS computes ScalarType t, which the CPU refuses; a wider type stands in
  bool keeps_wide = false;    // a widened call of integers or bools is done in int64, and its results stay so
  bool always_wide = false;   // widened even where the CPU has the dtype, as it keeps too few digits on the way
  std::unordered_map<int, RefusedDtype> refusals;  // by ScalarType
  const OperatorHazards* hazards = nullptr;  // known faults of the real kernel that a call must be looked at for
  const IndexCheck* indices = nullptr;
  const Alert* alert = nullptr;
  ArgumentCheck check = nullptr;
  ArgumentChange change = nullptr;
  WaitCondition waits_if = nullptr;
};

}  // namespace anymps
