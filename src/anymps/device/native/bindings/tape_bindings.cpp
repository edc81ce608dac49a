// Python's way to the tape (starting, draining, and marks of Python's own), and to where the program is: steps, phases, rounds,
// modules, lines, and whom the recorder calls.
#include "bindings/guarded.h"

#include "rules/rules.h"
#include "recorder/recorder.h"
#include "patches/patches.h"

#include <optional>
#include <string>

namespace anymps {
namespace {

void tape_start(uint64_t limit, std::optional<bool> by_observer) {
  nonblocking::recording_starts();
  roundtrip::recording_starts();
  overwritten::forget_all();
  forget_sites();
  forget_told();
  tape::start(limit, by_observer.value_or(false));
}

void tape_stop() {
  nonblocking::recording_ends();
  roundtrip::recording_ends();
  overwritten::forget_all();
  tape::stop();
}

// (entries, signatures, steps, sites, names from `first_operator` on, dropped, rounds)
PyObject* tape_drain(size_t first_operator) {
  Drained drained;
  Py_BEGIN_ALLOW_THREADS
  drained = tape::drain();
  Py_END_ALLOW_THREADS
  PyObject* signatures = list_of(drained.signatures, [](const SignatureText& s) {
    return Py_BuildValue("(IIisss)", s.id, s.op, int(s.fate), s.inputs.c_str(), s.outputs.c_str(), s.form.c_str());
  });
  PyObject* steps = list_of(drained.steps, [](const StepMark& s) {
    return Py_BuildValue("(ILL)", s.step, static_cast<long long>(s.start_ns), static_cast<long long>(s.end_ns));
  });
  PyObject* rounds = list_of(drained.rounds, [](const Round& r) {
    return Py_BuildValue(
        "(iIILL)", int(r.kind), r.key, r.site, static_cast<long long>(r.start_ns), static_cast<long long>(r.end_ns));
  });
  PyObject* sites = list_of(take_new_sites(), [](const SiteText& s) {
    return Py_BuildValue("(Isiss)", s.id, s.file.c_str(), s.line, s.function.c_str(), s.via.c_str());
  });
  PyObject* names = list_of(rule_names(first_operator), [](const std::string& name) { return to_object(name); });
  return Py_BuildValue(
      "(y#NNNNKN)", drained.entries.data(), static_cast<Py_ssize_t>(drained.entries.size()), signatures, steps, sites, names,
      static_cast<unsigned long long>(drained.dropped), rounds);
}

PyObject* tape_totals() {
  return list_of(tape::totals(), [](const Total& t) {
    return Py_BuildValue(
        "(IIIiiiKLL)", t.signature, t.module, t.site, int(t.phase), int(t.wait), int(t.direction),
        static_cast<unsigned long long>(t.count), static_cast<long long>(t.duration_ns), static_cast<long long>(t.moved_bytes));
  });
}

void mark_by_name(const std::string& name, uint8_t phase, int64_t start_ns, int64_t end_ns, int wait) {
  tape::mark(mark_rule(name), phase, start_ns, end_ns, static_cast<Wait>(wait));
}

void note_pair_by_name(const std::string& name, uint32_t site, uint32_t other, std::optional<int64_t> duration_ns) {
  tape::note_pair(mark_rule(name), site, other, 0, duration_ns.value_or(0));
}

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

PyMethodDef tape_methods[] = {
    method<&tape_start>("tape_start", "Starts a new tape; entries beyond the limit are only counted."),
    method<&tape_stop>("tape_stop", "Stops the tape."),
    method<&tape::pause>("tape_pause", "Pauses the running tape, or lets it go on."),
    method<&progress::sparse>("tape_sparse", "Leaves plain calls out from now on, or takes them in again."),
    method<&tape::pending>("tape_pending", "Entries not drained yet."),
    method<&tape_drain>("tape_drain", "Takes what was written since the last drain."),
    method<&tape_totals>("tape_totals", "Sums over everything drained so far."),
    method<&now_ns>("clock_ns", "The tape's clock."),
    method<&mark_by_name>("mark", "Writes an entry of our own."),
    method<&note_pair_by_name>("note_pair", "Writes a mark for a line and another one that belongs to it."),
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
