// The Python module `_native`, put together of its parts.
#include "bindings/guarded.h"

namespace anymps {
namespace {

PyMethodDef* const method_tables[] = {
    rule_methods, device_methods, tape_methods, observer_methods, shader_methods,
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "The native core of anymps.", -1, nullptr, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace anymps

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&anymps::definition);
  for (PyMethodDef* table : anymps::method_tables) {
    if (module != nullptr && PyModule_AddFunctions(module, table) != 0) {
      Py_CLEAR(module);
    }
  }
  return module;
}
