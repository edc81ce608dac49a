// The lines of the user's code that call the device, by the frames of Python, each told once and numbered.
#pragma once

#include <Python.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace anymps {

struct GilGuard {
  PyGILState_STATE state = PyGILState_Ensure();
  ~GilGuard() {
    PyGILState_Release(state);
  }
};

// While it lives, other threads may have the GIL that this one has, if it has it.
class WithoutGil {
 public:
  WithoutGil() : held_(PyGILState_GetThisThreadState() != nullptr && PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (held_ != nullptr) {
      PyEval_RestoreThread(held_);
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* const held_;
};

// Where in the user's code the calling thread is. Takes the GIL; answers 0 where there is no Python frame of the user's.
uint32_t current_site();
// Where in the user's own backward, 0 outside of it: the frames between here and the engine that calls it.
uint32_t current_site_in_backward();

// While one lives on a thread, no line of the user's runs there, whatever frames there are.
class WithoutLines {
 public:
  WithoutLines();
  ~WithoutLines();
  WithoutLines(const WithoutLines&) = delete;
  WithoutLines& operator=(const WithoutLines&) = delete;
};

// Folders whose code is not the user's: torch, anymps. Frames in them are passed over when a call site is looked for.
void set_internal_prefixes(std::vector<std::string> prefixes);

bool is_internal(const std::string& file);

struct SiteText {
  uint32_t id;
  std::string file, function, via;
  int line;
};
std::vector<SiteText> take_new_sites();
void forget_sites();

// The number of one place in the user's code, for Python callers: file, line, function.
uint32_t intern_site(const std::string& file, int line, const std::string& function, const std::string& via);

// Code that a compiler has written: the lines of the program that its lines compute.
struct CodePlace {
  std::string file, function;
  int line;  // 0: none of the program's
};
// By the first line of the written code that it holds for; it holds up to the next.
using GeneratedLines = std::map<int, CodePlace>;
void place_lines(const std::string& file, GeneratedLines lines);  // wants the GIL

}  // namespace anymps
