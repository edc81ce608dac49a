// Starting and stopping the observer, and what Python sees of the device in its place: waits, refusals, buffers.
#include "bindings/guarded.h"

#include "feeds/feeds.h"
#include "patches/patches.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

namespace anymps {
namespace {

// Observes all operators from now on; the tape runs already.
void observe(PyObject* raised, PyObject* fault) {
  patches::keep(callbacks().fault, fault);
  observer::start(raised);
}

void stop_observing() {
  observer::stop();
  patches::keep(callbacks().fault, nullptr);
}

// The host has waited for that many copies of those that had started; None: for everything.
void host_waited(PyObject* copies) {
  if (copies == Py_None) {
    observer::waited();
  } else {
    nonblocking::waited(to_number(copies));
  }
}

// (operator, line)
PyObject* take_checked() {
  const auto [name, site] = observer::take_checked();
  return Py_BuildValue("sI", name.c_str(), site);
}

// The number of the refusal; `site` is a line or 0.
uint32_t refused(const std::string& name, int fate, uint32_t site, bool backward) {
  const Rule* rule = find_rule(name);
  const tape::Place place = site != 0 ? tape::Place{site, backward} : tape::here();
  return tape::note_refusal(rule != nullptr ? *rule : mark_rule(name), static_cast<Fate>(fate), place);
}

void note_event_fault(bool timing, bool recorded, bool measured, bool synchronized) {
  if (const HazardRow* row = event_hazard({timing, recorded, measured, synchronized})) {
    note_fault(*row, "torch.mps.Event.elapsed_time");
  }
}

// `address` is that of a StorageImpl.
void assign_seen(uint64_t address, uint8_t role, uint32_t module) {
  buffers::assign(reinterpret_cast<c10::StorageImpl*>(static_cast<uintptr_t>(address)), role, module);
}

// (allocated now, peak of the samples)
PyObject* seen_memory() {
  return Py_BuildValue("KK", static_cast<unsigned long long>(buffers::allocated()), static_cast<unsigned long long>(buffers::peak()));
}

PyObject* owners() {
  return PyLong_FromVoidPtr(reinterpret_cast<void*>(buffers::deleter()));
}

void recognise_owners(PyObject* mark) {
  buffers::recognise(reinterpret_cast<at::DeleterFnPtr>(PyLong_AsVoidPtr(mark)));
}

}  // namespace

PyMethodDef observer_methods[] = {
    method<&observe>("observe", "Observes all operators from now on."),
    method<&stop_observing>("stop_observing", "Observes them no longer."),
    method<&number_check::start>("check_numbers", "Asks about the numbers of calls from now on."),
    method<&number_check::stop>("stop_checking_numbers", "Asks about them no longer."),
    method<&host_waited>("host_waited", "The host has waited, by something that is no operator."),
    method<&nonblocking::started>("copies_started", "How many copies have started that return early."),
    method<&take_checked>("take_checked", "The calls whose indices were looked at since the last wait."),
    method<&refused>("refused", "Writes a refused call, and gives its number."),
    method<&note_event_fault>("note_event_fault", "Notes the known fault that measuring up to an event meets, if it is in force."),
    method<&assign_seen>("assign_seen", "Says what a storage is whose buffer is seen, not owned."),
    method<&owners>("owners", "What tells the buffers apart that this library has seen."),
    method<&recognise_owners>("recognise_owners", "Recognises those that another copy of this library has seen, by that mark."),
    method<&seen_memory>("seen_memory", "Bytes allocated now, and the peak of the samples."),
    method<&buffers::reset_peak>("reset_seen_peak", "Sets that peak to what is allocated now."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
