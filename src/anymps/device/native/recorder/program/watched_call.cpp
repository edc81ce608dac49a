// Torch's warnings name a caller by counting Python frames: a wrapper in Python would be the file and line they name.

#include "recorder/program/python_bridge.h"

#include <cstddef>
#include <cstring>

namespace anymps {
namespace {

struct Watched {
  PyObject_HEAD
  vectorcallfunc entry;
  PyObject* original;
  PyObject* around;
};

Watched* as_watched(PyObject* self) {
  return reinterpret_cast<Watched*>(self);
}

// Calls `finish` with the exception that is on its way, which stays so.
void finish_raised(PyObject* finish) {
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyErr_NormalizeException(&type, &value, &trace);
  {
    const NoDynamo none;  // it clears what it raises itself, hence only while nothing else is on its way
    PyObject* answer = PyObject_CallOneArg(finish, value != nullptr ? value : Py_None);
    if (answer == nullptr) {
      PyErr_WriteUnraisable(finish);
    }
    Py_XDECREF(answer);
  }
  PyErr_Restore(type, value, trace);
}

PyObject* call_watched(PyObject* self, PyObject* const* args, size_t flags, PyObject* names) {
  const Watched* watched = as_watched(self);
  PyObject* finish;
  {
    const NoDynamo none;
    finish = PyObject_Vectorcall(watched->around, args, static_cast<size_t>(PyVectorcall_NARGS(flags)), names);
  }
  if (finish == nullptr) {
    return nullptr;
  }
  PyObject* result = PyObject_Vectorcall(watched->original, args, flags, names);
  if (finish != Py_None) {
    if (result == nullptr) {
      finish_raised(finish);
    } else {
      const NoDynamo none;
      PyObject* answer = PyObject_CallOneArg(finish, Py_None);
      if (answer == nullptr) {
        Py_CLEAR(result);
      }
      Py_XDECREF(answer);
    }
  }
  Py_DECREF(finish);
  return result;
}

PyObject* bind_watched(PyObject* self, PyObject* object, PyObject*) {
  return object == nullptr || object == Py_None ? Py_NewRef(self) : PyMethod_New(self, object);
}

// It looks like the original: its name, text, signature and attributes.
PyObject* watched_attribute(PyObject* self, PyObject* name) {
  const char* text = PyUnicode_AsUTF8(name);
  if (text == nullptr) {
    return nullptr;
  }
  if (std::strcmp(text, "__wrapped__") == 0) {
    return Py_NewRef(as_watched(self)->original);
  }
  if (std::strcmp(text, "__class__") == 0 || std::strcmp(text, "__call__") == 0 || std::strcmp(text, "__get__") == 0) {
    return PyObject_GenericGetAttr(self, name);
  }
  return PyObject_GetAttr(as_watched(self)->original, name);
}

int set_watched_attribute(PyObject* self, PyObject* name, PyObject* value) {
  return PyObject_SetAttr(as_watched(self)->original, name, value);
}

int traverse_watched(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(as_watched(self)->original);
  Py_VISIT(as_watched(self)->around);
  return 0;
}

int clear_watched(PyObject* self) {
  Py_CLEAR(as_watched(self)->original);
  Py_CLEAR(as_watched(self)->around);
  return 0;
}

void destroy_watched(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_watched(self);
  PyObject_GC_Del(self);
}

PyTypeObject* watched_type() {
  static PyTypeObject type = [] {
    PyTypeObject made = {PyVarObject_HEAD_INIT(nullptr, 0)};
    made.tp_name = "anymps.watched_call";
    made.tp_basicsize = sizeof(Watched);
    made.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL;
    made.tp_vectorcall_offset = offsetof(Watched, entry);
    made.tp_call = PyVectorcall_Call;
    made.tp_descr_get = bind_watched;
    made.tp_getattro = watched_attribute;
    made.tp_setattro = set_watched_attribute;
    made.tp_traverse = traverse_watched;
    made.tp_clear = clear_watched;
    made.tp_dealloc = destroy_watched;
    return made;
  }();
  static const bool ready = PyType_Ready(&type) == 0;
  return ready ? &type : nullptr;
}

}  // namespace

PyObject* make_watched_call(PyObject* original, PyObject* around) {
  PyTypeObject* type = watched_type();
  if (type == nullptr) {
    return nullptr;
  }
  Watched* watched = PyObject_GC_New(Watched, type);
  if (watched == nullptr) {
    return nullptr;
  }
  watched->entry = call_watched;
  watched->original = Py_NewRef(original);
  watched->around = Py_NewRef(around);
  PyObject_GC_Track(reinterpret_cast<PyObject*>(watched));
  return reinterpret_cast<PyObject*>(watched);
}

}  // namespace anymps
