// Call sites from Python frames, and the notes about refusals.
#include "recorder/python_bridge.h"

#include "recorder/autograd.h"
#include "device/backward_thread.h"
#include "recorder/repeats.h"
#include "recorder/tape.h"

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>
#include <utility>

// From torch/csrc/autograd/python_variable.h, which takes ten seconds to compile.
PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace anymps {
namespace {

struct CodeFacts {
  bool internal;
  std::string file, function;
};

struct SiteKey {
  const void* code;
  const void* via;
  int place;  // a line, or an instruction
  bool operator==(const SiteKey& other) const {
    return code == other.code && via == other.via && place == other.place;
  }
};
struct SiteHash {
  size_t operator()(const SiteKey& key) const {
    return std::hash<const void*>()(key.code) * 31 + std::hash<const void*>()(key.via) * 17 + static_cast<size_t>(key.place);
  }
};

// Guarded by the GIL.
std::vector<std::string> internal_prefixes;
std::unordered_map<PyCodeObject*, CodeFacts> codes;  // holds a reference to each, so that no address is used twice
std::unordered_map<SiteKey, uint32_t, SiteHash> sites;
std::unordered_map<SiteKey, uint32_t, SiteHash> instructions;  // the same by instruction: a line has to be searched for
std::unordered_map<std::string, uint32_t> named_sites;
std::vector<SiteText> new_sites;
uint32_t site_count = 0;
std::unordered_set<uint32_t> lines_told;  // of copies to mps

std::string text_of(PyObject* object, const char* attribute) {
  std::string result;
  PyObject* value = PyObject_GetAttrString(object, attribute);
  if (value != nullptr && PyUnicode_Check(value)) {
    if (const char* text = PyUnicode_AsUTF8(value)) {
      result = text;
    }
  }
  Py_XDECREF(value);
  PyErr_Clear();
  return result;
}

bool starts_with(const std::string& text, const std::string& prefix) {
  return text.compare(0, prefix.size(), prefix) == 0;
}

const CodeFacts& facts_of(PyCodeObject* code) {
  const auto found = codes.find(code);
  if (found != codes.end()) {
    return found->second;
  }
  Py_INCREF(code);
  CodeFacts facts{false, text_of(reinterpret_cast<PyObject*>(code), "co_filename"), text_of(reinterpret_cast<PyObject*>(code), "co_name")};
  facts.internal = is_internal(facts.file);
  return codes.emplace(code, std::move(facts)).first->second;
}

std::string short_name(const CodeFacts& facts) {
  const size_t torch = facts.file.rfind("/torch/");
  return (torch == std::string::npos ? facts.file : facts.file.substr(torch + 1)) + ":" + facts.function;
}

struct GilGuard {
  PyGILState_STATE state = PyGILState_Ensure();
  ~GilGuard() {
    PyGILState_Release(state);
  }
};

const char* refusal_name(Refusal kind) {
  switch (kind) {
    case Refusal::Missing: return "missing";
    case Refusal::Float64: return "float64";
    case Refusal::Complex128: return "complex128";
    case Refusal::Dtype: return "dtype";
    case Refusal::Device: return "device";
    case Refusal::Generator: return "generator";
    case Refusal::Rank: return "rank";
    case Refusal::Layout: return "layout";
    case Refusal::Memory: return "memory";
    case Refusal::Distributed: return "distributed";
    case Refusal::Argument: return "argument";
    case Refusal::Index: return "index";
    case Refusal::Determinism: return "determinism";
  }
  return "";
}

const char* error_name(ErrorClass error) {
  switch (error) {
    case ErrorClass::Runtime: return "RuntimeError";
    case ErrorClass::Type: return "TypeError";
    case ErrorClass::NotImplemented: return "NotImplementedError";
    case ErrorClass::Value: return "ValueError";
    case ErrorClass::Index: return "IndexError";
    case ErrorClass::Accelerator: return "AcceleratorError";
  }
  return "";
}

}  // namespace

Callbacks& callbacks() {
  static Callbacks the_callbacks;
  return the_callbacks;
}

bool is_internal(const std::string& file) {
  if (starts_with(file, "<frozen ") || starts_with(file, "<__array_function__")) {
    return true;
  }
  for (const std::string& prefix : internal_prefixes) {
    if (starts_with(file, prefix)) {
      return true;
    }
  }
  return false;
}

void set_internal_prefixes(std::vector<std::string> prefixes) {
  internal_prefixes = std::move(prefixes);
}

// The number of a frame of the user's, entered by way of `via`.
static uint32_t site_of_frame(PyFrameObject* frame, PyCodeObject* code, const CodeFacts& facts, PyCodeObject* via) {
#if PY_VERSION_HEX >= 0x030B0000
  uint32_t& known = instructions[{code, via, PyFrame_GetLasti(frame)}];
  if (known != 0) {
    return known;
  }
#else
  uint32_t known = 0;
#endif
  const int line = PyFrame_GetLineNumber(frame);
  uint32_t& site = sites[{code, via, line}];
  if (site == 0) {
    site = ++site_count;
    new_sites.push_back({site, facts.file, facts.function, via == nullptr ? "" : short_name(facts_of(via)), line});
  }
  known = site;
  return site;
}

static uint32_t site_of_frames(bool until_engine) {
  GilGuard gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  uint32_t id = 0;
  PyCodeObject* via = nullptr;
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const CodeFacts& facts = facts_of(code);
    if (!facts.internal) {
      id = site_of_frame(frame, code, facts, via);
      Py_DECREF(code);
      Py_DECREF(frame);
      break;
    }
    if (until_engine && facts.function == "_engine_run_backward") {
      Py_DECREF(code);
      Py_DECREF(frame);
      break;
    }
    // A mode, such as a default device, stands between an operator and the function of torch that called it.
    if (via == nullptr && facts.function != "__torch_function__" && facts.file.find("/torch/") != std::string::npos) {
      via = code;
    }
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  PyErr_Restore(type, value, traceback);
  return id;
}

uint32_t current_site() {
  return backward_thread::on_calling_thread() ? 0 : site_of_frames(false);
}

uint32_t current_site_in_backward() {
  return site_of_frames(true);
}

uint32_t intern_site(const std::string& file, int line, const std::string& function, const std::string& via) {
  const std::string key = file + "\n" + std::to_string(line) + "\n" + function;
  const auto found = named_sites.find(key);
  if (found != named_sites.end()) {
    return found->second;
  }
  const uint32_t id = ++site_count;
  named_sites.emplace(key, id);
  new_sites.push_back({id, file, function, via, line});
  return id;
}

std::vector<SiteText> take_new_sites() {
  return std::exchange(new_sites, {});
}

void forget_sites() {
  sites.clear();
  instructions.clear();
  named_sites.clear();
  new_sites.clear();
  lines_told.clear();
  repeats::forget_all();
  site_count = 0;
}

namespace {

// Sets what translates the thread's frames, as torch/_dynamo/eval_frame.py does; answers what did before.
PyObject* set_eval_frame(PyObject* callback) {
  static PyObject* set = [] {
    PyObject* module = PyImport_ImportModule("torch._C._dynamo.eval_frame");
    PyObject* found = module != nullptr ? PyObject_GetAttrString(module, "set_eval_frame") : nullptr;
    Py_XDECREF(module);
    PyErr_Clear();
    return found;
  }();
  PyObject* former = set != nullptr ? PyObject_CallOneArg(set, callback) : nullptr;
  PyErr_Clear();
  return former;
}

}  // namespace

NoDynamo::NoDynamo() : former_(set_eval_frame(Py_None)) {}

NoDynamo::~NoDynamo() {
  if (former_ == nullptr) {
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (former_ != Py_None) {
    Py_XDECREF(set_eval_frame(former_));
  }
  Py_DECREF(former_);
  PyErr_Restore(type, value, traceback);
}

namespace {

// Calls a callback with the exception of the calling thread put aside. An error inside is printed, never raised.
template <class Call>
void call_python(PyObject* callback, const Call& call) {
  thread_local bool busy = false;
  if (busy || callback == nullptr) {
    return;
  }
  busy = true;
  GilGuard gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  {
    const NoDynamo none;
    Py_XDECREF(call());
  }
  if (PyErr_Occurred()) {
    PyErr_WriteUnraisable(callback);
  }
  PyErr_Restore(type, value, traceback);
  busy = false;
}

}  // namespace

uint32_t note_refusal(Refusal kind, const Rule& rule, ErrorClass error, const std::string& message, const at::Tensor& culprit) {
  if (!recording()) {
    return 0;
  }
  const uint32_t number = tape::note_refusal(rule, kind == Refusal::Missing ? Fate::Missing : Fate::Refused);
  PyObject* callback = callbacks().refusal;
  call_python(callback, [&]() -> PyObject* {
    PyObject* tensor = culprit.defined() ? THPVariable_Wrap(culprit) : Py_NewRef(Py_None);
    if (tensor == nullptr) {
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(
        callback, "IssssO", number, refusal_name(kind), rule.name.c_str(), error_name(error), message.c_str(), tensor);
    Py_DECREF(tensor);
    return result;
  });
  return number;
}

void note_copy_to_mps(const at::Tensor& source) {
  if (!recording() || muted() || tape::is_sparse() || callbacks().copied == nullptr || in_backward()) {
    return;
  }
  const uint32_t site = current_site();
  const bool again = site != 0 && repeats::is_third(source, site);
  GilGuard gil;
  if (site == 0 || !(lines_told.insert(site).second || again)) {
    return;
  }
  call_python(callbacks().copied, [&]() -> PyObject* {
    PyObject* tensor = THPVariable_Wrap(source);
    if (tensor == nullptr) {
      return nullptr;
    }
    PyObject* result = PyObject_CallFunction(callbacks().copied, "OIO", tensor, site, again ? Py_True : Py_False);
    Py_DECREF(tensor);
    return result;
  });
}

void note_surfaced(uint32_t number) {
  if (recording() && number != 0) {
    call_python(callbacks().surfaced, [&] { return PyObject_CallFunction(callbacks().surfaced, "I", number); });
  }
}

}  // namespace anymps
