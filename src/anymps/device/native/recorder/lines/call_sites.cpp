// Frames, from the innermost on, until one is the user's.
#include "recorder/lines/call_sites.h"

#include <functional>
#include <iterator>
#include <unordered_map>
#include <utility>

namespace anymps {
namespace {

thread_local int without_lines = 0;

struct CodeFacts {
  bool internal;
  std::string file, function;
  bool nameless = false;  // `exec` of a text: a dataclass's methods, a program's own settings
  bool compares = false;  // a library that looks at tensors for whoever calls it: its name is worth knowing
  const GeneratedLines* lines = nullptr;  // of code that a compiler has written
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

std::unordered_map<std::string, GeneratedLines>& written_files() {
  static auto* tables = new std::unordered_map<std::string, GeneratedLines>();  // never destroyed: code outlives it
  return *tables;
}

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

// The name that the program gave a function. Dynamo runs what follows a graph break as torch_dynamo_resume_in_<name>_at_<line>.
std::string own_name(std::string function) {
  static const std::string prefix = "torch_dynamo_resume_in_";
  const size_t line = function.rfind("_at_");
  if (starts_with(function, prefix) && line != std::string::npos && line >= prefix.size()) {
    return function.substr(prefix.size(), line - prefix.size());
  }
  return function;
}

// A place has one number, though it may be compiled more than once: Dynamo makes new code of a function each time.
uint32_t number_of(const std::string& file, int line, const std::string& function, const std::string& via) {
  uint32_t& known = named_sites[file + "\n" + std::to_string(line) + "\n" + function + "\n" + via];
  if (known == 0) {
    known = ++site_count;
    new_sites.push_back({known, file, function, via, line});
  }
  return known;
}

const CodeFacts& facts_of(PyCodeObject* code) {
  const auto found = codes.find(code);
  if (found != codes.end()) {
    return found->second;
  }
  Py_INCREF(code);
  auto* object = reinterpret_cast<PyObject*>(code);
  CodeFacts facts{false, text_of(object, "co_filename"), own_name(text_of(object, "co_name"))};
  facts.internal = is_internal(facts.file);
  facts.nameless = facts.file == "<string>";
  facts.compares = facts.internal && facts.file.find("/unittest/") != std::string::npos;
  const auto written = written_files().find(facts.file);
  facts.lines = written == written_files().end() ? nullptr : &written->second;
  return codes.emplace(code, std::move(facts)).first->second;
}

std::string short_name(const CodeFacts& facts) {
  const size_t package = facts.file.rfind(facts.compares ? "/unittest/" : "/torch/");
  return (package == std::string::npos ? facts.file : facts.file.substr(package + 1)) + ":" + facts.function;
}

}  // namespace

WithoutLines::WithoutLines() {
  ++without_lines;
}

WithoutLines::~WithoutLines() {
  --without_lines;
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
    site = number_of(facts.file, line, facts.function, via == nullptr ? "" : short_name(facts_of(via)));
  }
  known = site;
  return site;
}

// The number of the line that a frame of written code computes; 0 if it computes none.
static uint32_t site_of_written(PyFrameObject* frame, PyCodeObject* code, const GeneratedLines& lines) {
  const int line = PyFrame_GetLineNumber(frame);
  uint32_t& site = sites[{code, nullptr, line}];
  const auto after = lines.upper_bound(line);
  if (site == 0 && after != lines.begin() && std::prev(after)->second.line != 0) {
    const CodePlace& place = std::prev(after)->second;
    site = number_of(place.file, place.line, own_name(place.function), "");
  }
  return site;
}

static uint32_t site_of_frames(bool until_engine) {
  GilGuard gil;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  uint32_t id = 0;
  PyCodeObject* via = nullptr;
  PyFrameObject* nameless = nullptr;  // stands where nothing further out is the user's, as in `python -c`
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const CodeFacts& facts = facts_of(code);
    if (facts.lines != nullptr) {
      id = site_of_written(frame, code, *facts.lines);
    } else if (facts.nameless && !facts.internal) {
      if (nameless == nullptr) {
        Py_INCREF(frame);
        nameless = frame;
      }
    } else if (!facts.internal) {
      id = site_of_frame(frame, code, facts, via);
    }
    if (id != 0) {
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
    if (facts.compares) {
      via = code;
    } else if (via == nullptr && facts.function != "__torch_function__" && facts.file.find("/torch/") != std::string::npos) {
      via = code;
    }
    Py_DECREF(code);
    PyFrameObject* back = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = back;
  }
  if (nameless != nullptr) {
    if (id == 0) {
      PyCodeObject* code = PyFrame_GetCode(nameless);
      id = site_of_frame(nameless, code, facts_of(code), nullptr);
      Py_DECREF(code);
    }
    Py_DECREF(nameless);
  }
  PyErr_Restore(type, value, traceback);
  return id;
}

uint32_t current_site() {
  return without_lines > 0 ? 0 : site_of_frames(false);
}

uint32_t current_site_in_backward() {
  return site_of_frames(true);
}

uint32_t intern_site(const std::string& file, int line, const std::string& function, const std::string& via) {
  return number_of(file, line, own_name(function), via);
}

std::vector<SiteText> take_new_sites() {
  return std::exchange(new_sites, {});
}

void forget_sites() {
  sites.clear();
  instructions.clear();
  named_sites.clear();
  new_sites.clear();
  site_count = 0;
}

void place_lines(const std::string& file, GeneratedLines lines) {
  written_files()[file] = std::move(lines);
}

}  // namespace anymps
