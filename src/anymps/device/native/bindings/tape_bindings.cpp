// Python's way to the tape: starting, draining, and marks of Python's own.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <string>

namespace anymps {
namespace {

// tape_start(limit, observed)
PyObject* tape_start(PyObject*, PyObject* args) {
  unsigned long long limit;
  int by_observer = 0;
  if (!PyArg_ParseTuple(args, "K|p", &limit, &by_observer)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    nonblocking::recording_starts();
    roundtrip::recording_starts();
    overwritten::forget_all();
    forget_sites();
    forget_told();
    tape::start(limit, by_observer != 0);
    Py_RETURN_NONE;
  });
}

PyObject* tape_stop(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    nonblocking::recording_ends();
    roundtrip::recording_ends();
    overwritten::forget_all();
    tape::stop();
    Py_RETURN_NONE;
  });
}

PyObject* tape_pause(PyObject*, PyObject* pause) {
  tape::pause(PyObject_IsTrue(pause) == 1);
  Py_RETURN_NONE;
}

PyObject* tape_sparse(PyObject*, PyObject* on) {
  progress::sparse(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}

PyObject* tape_pending(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(tape::pending());
}

// drain(first_operator) -> (entries, signatures, steps, sites, operator names from first_operator on, dropped, rounds)
PyObject* tape_drain(PyObject*, PyObject* first) {
  return guarded([&]() -> PyObject* {
    Drained drained;
    Py_BEGIN_ALLOW_THREADS
    drained = tape::drain();
    Py_END_ALLOW_THREADS
    PyObject* signatures = PyList_New(0);
    for (const SignatureText& s : drained.signatures) {
      PyObject* row = Py_BuildValue("(IIisss)", s.id, s.op, int(s.fate), s.inputs.c_str(), s.outputs.c_str(), s.form.c_str());
      PyList_Append(signatures, row);
      Py_DECREF(row);
    }
    PyObject* steps = PyList_New(0);
    for (const StepMark& s : drained.steps) {
      PyObject* row = Py_BuildValue("(ILL)", s.step, static_cast<long long>(s.start_ns), static_cast<long long>(s.end_ns));
      PyList_Append(steps, row);
      Py_DECREF(row);
    }
    PyObject* rounds = PyList_New(0);
    for (const Round& r : drained.rounds) {
      PyObject* row = Py_BuildValue(
          "(iIILL)", int(r.kind), r.key, r.site, static_cast<long long>(r.start_ns), static_cast<long long>(r.end_ns));
      PyList_Append(rounds, row);
      Py_DECREF(row);
    }
    PyObject* sites = PyList_New(0);
    for (const SiteText& s : take_new_sites()) {
      PyObject* row = Py_BuildValue("(Isiss)", s.id, s.file.c_str(), s.line, s.function.c_str(), s.via.c_str());
      PyList_Append(sites, row);
      Py_DECREF(row);
    }
    PyObject* names = PyList_New(0);
    for (const std::string& name : rule_names(PyLong_AsSize_t(first))) {
      PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
      PyList_Append(names, text);
      Py_DECREF(text);
    }
    return Py_BuildValue(
        "(y#NNNNKN)", drained.entries.data(), static_cast<Py_ssize_t>(drained.entries.size()), signatures, steps, sites, names,
        static_cast<unsigned long long>(drained.dropped), rounds);
  });
}

PyObject* tape_totals(PyObject*, PyObject*) {
  return guarded([] {
    PyObject* rows = PyList_New(0);
    for (const Total& t : tape::totals()) {
      PyObject* row = Py_BuildValue(
          "(IIIiiiKLL)", t.signature, t.module, t.site, int(t.phase), int(t.wait), int(t.direction),
          static_cast<unsigned long long>(t.count), static_cast<long long>(t.duration_ns), static_cast<long long>(t.moved_bytes));
      PyList_Append(rows, row);
      Py_DECREF(row);
    }
    return rows;
  });
}

PyObject* clock_ns(PyObject*, PyObject*) {
  return PyLong_FromLongLong(now_ns());
}

// mark(name, phase, start_ns, end_ns, wait)
PyObject* mark(PyObject*, PyObject* args) {
  const char* name;
  int phase, wait;
  long long start, end;
  if (!PyArg_ParseTuple(args, "siLLi", &name, &phase, &start, &end, &wait)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    tape::mark(mark_rule(name), static_cast<uint8_t>(phase), start, end, static_cast<Wait>(wait));
    Py_RETURN_NONE;
  });
}

// note_pair(name, line, other line, duration_ns = 0): a mark
PyObject* note_pair(PyObject*, PyObject* args) {
  const char* name;
  unsigned int site, other;
  long long duration = 0;
  if (!PyArg_ParseTuple(args, "sII|L", &name, &site, &other, &duration)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    tape::note_pair(mark_rule(name), site, other, 0, duration);
    Py_RETURN_NONE;
  });
}

}  // namespace

PyMethodDef tape_methods[] = {
    {"tape_start", tape_start, METH_VARARGS, "Starts a new tape; entries beyond the limit are only counted."},
    {"tape_stop", tape_stop, METH_NOARGS, "Stops the tape."},
    {"tape_pause", tape_pause, METH_O, "Pauses the running tape, or lets it go on."},
    {"tape_sparse", tape_sparse, METH_O, "Leaves plain calls out from now on, or takes them in again."},
    {"tape_pending", tape_pending, METH_NOARGS, "Entries not drained yet."},
    {"tape_drain", tape_drain, METH_O, "Takes what was written since the last drain."},
    {"tape_totals", tape_totals, METH_NOARGS, "Sums over everything drained so far."},
    {"clock_ns", clock_ns, METH_NOARGS, "The tape's clock."},
    {"mark", mark, METH_VARARGS, "Writes an entry of our own."},
    {"note_pair", note_pair, METH_VARARGS, "Writes a mark for a line and another one that belongs to it."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
