// The places where the core reaches into objects of others: tables of virtual functions, definitions of methods, entries of functions.
#pragma once

#include <Python.h>

#include <cstddef>

namespace anymps::patches {

// Puts an object of Python into a place that holds one; None empties it.
inline void keep(PyObject*& place, PyObject* object) {
  PyObject* former = place;
  place = object == nullptr || object == Py_None ? nullptr : Py_NewRef(object);
  Py_XDECREF(former);
}

// Makes a live object one of our class: it gets our table of virtual functions. Neither class has data.
void replace_virtuals(void* live, const void* ours);

// Puts a function into the table of a live object's class, `offset` bytes after its begin. False where it stays protected.
bool replace_virtual(const void* live, size_t offset, void* function);

// The definition behind a built-in function or method that is called with these `flags` (METH_...), else null. Every object made
// from it is entered by what it holds: a method bound to its tensor, too.
PyMethodDef* definition_of(PyObject* function, int flags);

// Returns what a definition called so far.
template <class Function>
Function replace_method(PyMethodDef* definition, Function ours) {
  const auto theirs = reinterpret_cast<Function>(reinterpret_cast<void*>(definition->ml_meth));
  definition->ml_meth = reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(ours));
  return theirs;
}

// Returns the way into a function, of Python or built in, that calls by position took so far. It stays the object that it is: names
// imported before lead here, too, and torch.compile and other modes know it.
vectorcallfunc replace_entry(PyObject* function, vectorcallfunc entry);

}  // namespace anymps::patches
