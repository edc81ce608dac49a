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

// offer_calls(operators, launcher): the launcher of PyTorch's own kernels is asked first for calls of these operators.
PyObject* offer_to_launcher(PyObject*, PyObject* args) {
  PyObject *operators, *launcher;
  if (!PyArg_ParseTuple(args, "OO", &operators, &launcher)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    std::unordered_set<std::string> names;
    for_each(operators, [&](PyObject* name) { names.insert(to_string(name)); });
    offer_calls(names, launcher);
    Py_RETURN_NONE;
  });
}

}  // namespace

PyMethodDef shader_methods[] = {
    {"shaders_by_operator", shaders_by_operator, METH_NOARGS, "Whether the launch of a shader must go by an operator."},
    {"note_shader_error", note_shader_error, METH_VARARGS, "Notes what a kernel wrote into its error buffer."},
    {"offer_calls", offer_to_launcher, METH_VARARGS, "Has a launcher asked first for calls of these operators."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
