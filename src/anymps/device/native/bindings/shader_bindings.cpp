// Python's way from Metal shaders to the tape and to late errors.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "device/device.h"
#include "law/law.h"
#include "recorder/recorder.h"

#include <string>

namespace anymps {
namespace {

// shaders_by_operator() -> whether a launch must go by an operator: something records, or nothing is computed.
PyObject* shaders_by_operator(PyObject*, PyObject*) {
  return PyBool_FromLong(recording() || !substrate().holds_data());
}

// note_shader_error(kernel, message): a kernel has written into its error buffer; the next wait raises it.
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

}  // namespace

PyMethodDef shader_methods[] = {
    {"shaders_by_operator", shaders_by_operator, METH_NOARGS, "Whether the launch of a shader must go by an operator."},
    {"note_shader_error", note_shader_error, METH_VARARGS, "Notes what a kernel wrote into its error buffer."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
