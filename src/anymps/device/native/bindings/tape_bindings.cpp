// Python's way to the tape: starting, draining, and marks of Python's own.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

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
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
