// Python's way to where the program is: steps, phases, rounds, modules, lines, and whom the recorder calls.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "recorder/recorder.h"

#include <string>

namespace anymps {
namespace {

PyObject* set_phase(PyObject*, PyObject* phase) {
  return PyLong_FromLong(progress::set_phase(static_cast<uint8_t>(PyLong_AsLong(phase))));
}

PyObject* end_step(PyObject*, PyObject*) {
  if (recording()) {
    progress::end_step();
  }
  Py_RETURN_NONE;
}

// note_round(kind, key, start)
PyObject* note_round(PyObject*, PyObject* args) {
  int kind;
  unsigned int key;
  long long start;
  if (!PyArg_ParseTuple(args, "iIL", &kind, &key, &start)) {
    return nullptr;
  }
  if (recording()) {
    progress::note_round(static_cast<RoundKind>(kind), key, start);
  }
  Py_RETURN_NONE;
}

// site(file, line, function, via) -> number
PyObject* site(PyObject*, PyObject* args) {
  const char *file, *function, *via;
  int line;
  if (!PyArg_ParseTuple(args, "siss", &file, &line, &function, &via)) {
    return nullptr;
  }
  return guarded([&] { return PyLong_FromUnsignedLong(intern_site(file, line, function, via)); });
}

// place_lines(file, {first line: (file, line, function)})
PyObject* place_written(PyObject*, PyObject* args) {
  const char* file;
  PyObject* places;
  if (!PyArg_ParseTuple(args, "sO!", &file, &PyDict_Type, &places)) {
    return nullptr;
  }
  GeneratedLines lines;
  PyObject *first, *place;
  for (Py_ssize_t at = 0; PyDict_Next(places, &at, &first, &place);) {
    const char *own, *function;
    int line;
    if (!PyArg_ParseTuple(place, "sis", &own, &line, &function)) {
      return nullptr;
    }
    const long begin = PyLong_AsLong(first);
    if (begin == -1 && PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    lines[static_cast<int>(begin)] = {own, function, line};
  }
  place_lines(file, std::move(lines));
  Py_RETURN_NONE;
}

PyObject* here(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLong(current_place());
}

PyObject* internal(PyObject*, PyObject* file) {
  return guarded([&] { return PyBool_FromLong(is_internal(to_string(file))); });
}

// set_callbacks(refusal, surfaced, copied, module)
PyObject* set_callbacks(PyObject*, PyObject* args) {
  PyObject *refusal, *surfaced, *copied, *module;
  if (!PyArg_ParseTuple(args, "OOOO", &refusal, &surfaced, &copied, &module)) {
    return nullptr;
  }
  auto keep = [](PyObject*& slot, PyObject* value) {
    PyObject* former = slot;
    slot = value == Py_None ? nullptr : Py_NewRef(value);
    Py_XDECREF(former);
  };
  keep(callbacks().refusal, refusal);
  keep(callbacks().surfaced, surfaced);
  keep(callbacks().copied, copied);
  keep(callbacks().module, module);
  Py_RETURN_NONE;
}

// watch_calls(original, around) -> callable
PyObject* watch_calls(PyObject*, PyObject* args) {
  PyObject *original, *around;
  if (!PyArg_ParseTuple(args, "OO", &original, &around)) {
    return nullptr;
  }
  return make_watched_call(original, around);
}

PyObject* watch_modules(PyObject*, PyObject* function) {
  if (!watch_module_calls(function)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* unwatch_modules(PyObject*, PyObject*) {
  unwatch_module_calls();
  Py_RETURN_NONE;
}

PyObject* forget_module(PyObject*, PyObject* address) {
  forget_module_number(static_cast<PyObject*>(PyLong_AsVoidPtr(address)));
  PyErr_Clear();
  Py_RETURN_NONE;
}

PyObject* forget_modules(PyObject*, PyObject*) {
  forget_module_numbers();
  Py_RETURN_NONE;
}

}  // namespace

PyMethodDef progress_methods[] = {
    {"set_phase", set_phase, METH_O, "Sets the calling thread's phase and returns the former one."},
    {"end_step", end_step, METH_NOARGS, "Ends a training step."},
    {"note_round", note_round, METH_VARARGS, "Notes what a loop does once a round, and that it ends now."},
    {"site", site, METH_VARARGS, "The number of a place in the user's code."},
    {"place_lines", place_written, METH_VARARGS, "Which lines of the program the lines of written code compute."},
    {"current_site", here, METH_NOARGS, "The number of the place in the user's code that is running."},
    {"is_internal", internal, METH_O, "Whether a file is torch's or anymps' own, hence no place in the user's code."},
    {"set_callbacks", set_callbacks, METH_VARARGS, "What to call for refusals and for new modules."},
    {"watch_calls", watch_calls, METH_VARARGS, "A callable in the place of another one that tells of each call and leaves no frame."},
    {"watch_modules", watch_modules, METH_O, "Notes which module runs, given torch.nn.Module.__call__."},
    {"unwatch_modules", unwatch_modules, METH_NOARGS, "Notes it no longer."},
    {"forget_module", forget_module, METH_O, "Forgets a module that is gone, by its address."},
    {"forget_modules", forget_modules, METH_NOARGS, "Forgets all modules."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
