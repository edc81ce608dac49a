// Reaching into tables, definitions and functions of others.
#include "patches/patches.h"

#include <cstdint>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

namespace anymps::patches {

void replace_virtuals(void* live, const void* ours) {
  std::memcpy(live, ours, sizeof(void*));
}

bool replace_virtual(const void* live, size_t offset, void* function) {
  void** slot = *static_cast<void** const*>(live) + offset / sizeof(void*);
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  auto* start = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(slot) & ~(page - 1));
  if (mprotect(start, page, PROT_READ | PROT_WRITE) != 0) {
    return false;
  }
  *slot = function;
  mprotect(start, page, PROT_READ);  // vtables are read-only after relocation
  return true;
}

PyMethodDef* definition_of(PyObject* function, int flags) {
  constexpr int kinds = METH_VARARGS | METH_KEYWORDS | METH_NOARGS | METH_O | METH_FASTCALL | METH_METHOD;
  PyMethodDef* definition = nullptr;
  if (PyCFunction_CheckExact(function)) {
    definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  } else if (Py_IS_TYPE(function, &PyMethodDescr_Type)) {
    definition = reinterpret_cast<PyMethodDescrObject*>(function)->d_method;
  }
  return definition != nullptr && (definition->ml_flags & kinds) == flags ? definition : nullptr;
}

vectorcallfunc replace_entry(PyObject* function, vectorcallfunc entry) {
  if (!PyFunction_Check(function)) {
    auto* built_in = reinterpret_cast<PyCFunctionObject*>(function);
    const vectorcallfunc former = built_in->vectorcall;
    built_in->vectorcall = entry;
    return former;
  }
  auto* written = reinterpret_cast<PyFunctionObject*>(function);
  const vectorcallfunc former = written->vectorcall;
#if PY_VERSION_HEX >= 0x030C0000
  PyFunction_SetVectorcall(written, entry);
#else
  written->vectorcall = entry;
#endif
  return former;
}

}  // namespace anymps::patches
