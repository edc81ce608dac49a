// Python's way from Metal shaders to the tape and to late errors.
#include "bindings/shader_bindings.h"

#include "bindings/guarded.h"
#include "device/device.h"
#include "law/law.h"
#include "recorder/recorder.h"

#include <string>

namespace anymps {

PyObject* shaders_by_operator(PyObject*, PyObject*) {
  return PyBool_FromLong(recording() || !substrate().holds_data());
}

PyObject* note_shader_error(PyObject*, PyObject* args) {
  const char *kernel, *message;
  if (!PyArg_ParseTuple(args, "ss", &kernel, &message)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    delayed::note(Refusal::Index, mark_rule(std::string("metal::") + kernel), message);
    Py_RETURN_NONE;
  });
}

}  // namespace anymps
