// Python's way to where the program is: steps, phases, rounds, modules, lines, and whom the recorder calls.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "patches/patches.h"
#include "recorder/recorder.h"

#include <string>

namespace anymps {
namespace {

void end_step() {
  if (recording()) {
    progress::end_step();
  }
}

void note_round(int kind, uint32_t key, int64_t start_ns) {
  if (recording()) {
    progress::note_round(static_cast<RoundKind>(kind), key, start_ns);
  }
}

// `places`: {first line: (file, line, function)}
void place_written(const std::string& file, PyObject* places) {
  GeneratedLines lines;
  PyObject *first, *place;
  for (Py_ssize_t at = 0; PyDict_Next(places, &at, &first, &place);) {
    const char *own, *function;
    int line;
    unpack(place, "sis", &own, &line, &function);
    lines[FromPython<int>::read(first)] = {own, function, line};
  }
  place_lines(file, std::move(lines));
}

void set_callbacks(PyObject* refusal, PyObject* surfaced, PyObject* copied, PyObject* module) {
  patches::keep(callbacks().refusal, refusal);
  patches::keep(callbacks().surfaced, surfaced);
  patches::keep(callbacks().copied, copied);
  patches::keep(callbacks().module, module);
}

void watch_modules(PyObject* function) {
  raised_unless(watch_module_calls(function));
}

void forget_module(PyObject* address) {
  forget_module_number(static_cast<PyObject*>(PyLong_AsVoidPtr(address)));
  PyErr_Clear();
}

}  // namespace

PyMethodDef progress_methods[] = {
    method<&progress::set_phase>("set_phase", "Sets the calling thread's phase and returns the former one."),
    method<&end_step>("end_step", "Ends a training step."),
    method<&note_round>("note_round", "Notes what a loop does once a round, and that it ends now."),
    method<&intern_site>("site", "The number of a place in the user's code."),
    method<&place_written>("place_lines", "Which lines of the program the lines of written code compute."),
    method<&current_place>("current_site", "The number of the place in the user's code that is running."),
    method<&is_internal>("is_internal", "Whether a file is torch's or anymps' own, hence no place in the user's code."),
    method<&set_callbacks>("set_callbacks", "What to call for refusals and for new modules."),
    method<&make_watched_call>("watch_calls", "A callable in the place of another one that tells of each call and leaves no frame."),
    method<&watch_modules>("watch_modules", "Notes which module runs, given torch.nn.Module.__call__."),
    method<&unwatch_module_calls>("unwatch_modules", "Notes it no longer."),
    method<&forget_module>("forget_module", "Forgets a module that is gone, by its address."),
    method<&forget_module_numbers>("forget_modules", "Forgets all modules."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
