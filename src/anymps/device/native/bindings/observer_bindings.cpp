// Starting and stopping the observer, and what Python sees of the device in its place: waits, refusals, buffers.
#include "bindings/bindings.h"

#include "feeds/feeds.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <limits>

namespace anymps {
namespace {

void keep_fault_callback(PyObject* value) {
  PyObject* former = callbacks().fault;
  callbacks().fault = value == nullptr || value == Py_None ? nullptr : Py_NewRef(value);
  Py_XDECREF(former);
}

// observe(raised, fault): observes all operators from now on; the tape runs already
PyObject* observe(PyObject*, PyObject* args) {
  PyObject *raised, *fault;
  if (!PyArg_ParseTuple(args, "OO", &raised, &fault)) {
    return nullptr;
  }
  keep_fault_callback(fault);
  observer::start(raised);
  Py_RETURN_NONE;
}

PyObject* stop_observing(PyObject*, PyObject*) {
  observer::stop();
  keep_fault_callback(nullptr);
  Py_RETURN_NONE;
}

// check_numbers(begin, end, all): asks Python about the numbers of calls from now on
PyObject* check_numbers(PyObject*, PyObject* args) {
  PyObject *begin, *end;
  int all;
  if (!PyArg_ParseTuple(args, "OOp", &begin, &end, &all)) {
    return nullptr;
  }
  number_check::start(begin, end, all != 0);
  Py_RETURN_NONE;
}

PyObject* stop_checking_numbers(PyObject*, PyObject*) {
  number_check::stop();
  Py_RETURN_NONE;
}

// host_waited(copies): the host has waited for that many copies of those that had started; None: for everything
PyObject* host_waited(PyObject*, PyObject* copies) {
  if (copies == Py_None) {
    observer::waited();
  } else {
    nonblocking::waited(PyLong_AsUnsignedLongLong(copies));
  }
  Py_RETURN_NONE;
}

PyObject* copies_started(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(nonblocking::started());
}

// take_checked() -> (operator, line)
PyObject* take_checked(PyObject*, PyObject*) {
  const auto [name, site] = observer::take_checked();
  return Py_BuildValue("sI", name.c_str(), site);
}

// refused(operator, fate, line or 0, in a backward) -> number of the refusal
PyObject* refused(PyObject*, PyObject* args) {
  const char* name;
  int fate;
  unsigned site;
  int backward;
  if (!PyArg_ParseTuple(args, "siIp", &name, &fate, &site, &backward)) {
    return nullptr;
  }
  const Rule* rule = find_rule(name);
  const tape::Place place = site != 0 ? tape::Place{site, backward != 0} : tape::here();
  return PyLong_FromUnsignedLong(tape::note_refusal(rule != nullptr ? *rule : mark_rule(name), static_cast<Fate>(fate), place));
}

// note_event_fault(timing, recorded, measured, synchronized): the fault that measuring up to such an event meets, if there is one
PyObject* note_event_fault(PyObject*, PyObject* args) {
  int timing, recorded, measured, synchronized;
  if (!PyArg_ParseTuple(args, "pppp", &timing, &recorded, &measured, &synchronized)) {
    return nullptr;
  }
  if (const HazardRow* row = event_hazard({timing != 0, recorded != 0, measured != 0, synchronized != 0})) {
    note_fault(*row, "torch.mps.Event.elapsed_time");
  }
  Py_RETURN_NONE;
}

// assign_seen(address of a StorageImpl, role, module): says what a storage is
PyObject* assign_seen(PyObject*, PyObject* args) {
  unsigned long long address;
  int role;
  unsigned module;
  if (!PyArg_ParseTuple(args, "KiI", &address, &role, &module)) {
    return nullptr;
  }
  buffers::assign(reinterpret_cast<c10::StorageImpl*>(static_cast<uintptr_t>(address)), static_cast<uint8_t>(role), module);
  Py_RETURN_NONE;
}

// seen_memory() -> (allocated now, peak of the samples)
PyObject* seen_memory(PyObject*, PyObject*) {
  return Py_BuildValue("KK", static_cast<unsigned long long>(buffers::allocated()), static_cast<unsigned long long>(buffers::peak()));
}

PyObject* reset_seen_peak(PyObject*, PyObject*) {
  buffers::reset_peak();
  Py_RETURN_NONE;
}

// owners() -> the mark of this library's owners of bytes
PyObject* owners(PyObject*, PyObject*) {
  return PyLong_FromVoidPtr(reinterpret_cast<void*>(buffers::deleter()));
}

PyObject* recognise_owners(PyObject*, PyObject* mark) {
  buffers::recognise(reinterpret_cast<at::DeleterFnPtr>(PyLong_AsVoidPtr(mark)));
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef observer_methods[] = {
    {"observe", observe, METH_VARARGS, "Observes all operators from now on."},
    {"stop_observing", stop_observing, METH_NOARGS, "Observes them no longer."},
    {"check_numbers", check_numbers, METH_VARARGS, "Asks about the numbers of calls from now on."},
    {"stop_checking_numbers", stop_checking_numbers, METH_NOARGS, "Asks about them no longer."},
    {"host_waited", host_waited, METH_O, "The host has waited, by something that is no operator."},
    {"copies_started", copies_started, METH_NOARGS, "How many copies have started that return early."},
    {"take_checked", take_checked, METH_NOARGS, "The calls whose indices were looked at since the last wait."},
    {"refused", refused, METH_VARARGS, "Writes a refused call, and gives its number."},
    {"note_event_fault", note_event_fault, METH_VARARGS, "Notes the known fault that measuring up to an event meets, if it is in force."},
    {"assign_seen", assign_seen, METH_VARARGS, "Says what a storage is whose buffer is seen, not owned."},
    {"owners", owners, METH_NOARGS, "What tells the buffers apart that this library has seen."},
    {"recognise_owners", recognise_owners, METH_O, "Recognises those that another copy of this library has seen, by that mark."},
    {"seen_memory", seen_memory, METH_NOARGS, "Bytes allocated now, and the peak of the samples."},
    {"reset_seen_peak", reset_seen_peak, METH_NOARGS, "Sets that peak to what is allocated now."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
