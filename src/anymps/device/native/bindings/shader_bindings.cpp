// Python's way from Metal shaders to the tape and to late errors.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "device/device.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <torch/csrc/autograd/python_variable.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

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

// offer_calls(operators, launcher): the launcher of PyTorch's own kernels is asked first for calls of these operators; each is
// (name, whether it is offered whole).
PyObject* offer_to_launcher(PyObject*, PyObject* args) {
  PyObject *operators, *launcher;
  if (!PyArg_ParseTuple(args, "OO", &operators, &launcher)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    std::unordered_map<std::string, bool> offers;
    for_each(operators, [&](PyObject* one) {
      const char* name;
      int whole;
      unpack(one, "sp", &name, &whole);
      offers[name] = whole != 0;
    });
    offer_calls(offers, launcher);
    canaries::begin();
    Py_RETURN_NONE;
  });
}

PyObject* to_tuple(Py_ssize_t where, const margins::Stray& stray) {
  return Py_BuildValue(
      "(nLnn)", where, static_cast<long long>(stray.offset), static_cast<Py_ssize_t>(stray.count), static_cast<Py_ssize_t>(stray.nbytes));
}

// stray_store(addresses) -> (index in the list, offset of the first byte, how many bytes, bytes of the buffer) of the first
// buffer, of those that begin at these addresses, beside which a kernel of PyTorch's has stored something, or None.
PyObject* stray_store(PyObject*, PyObject* addresses) {
  return guarded([&]() -> PyObject* {
    PyObject* first = nullptr;
    Py_ssize_t where = 0;
    for_each(addresses, [&](PyObject* address) {
      const auto found = canaries::stray(PyLong_AsVoidPtr(address));
      if (found && first == nullptr) {
        first = to_tuple(where, *found);
      }
      ++where;
    });
    return first != nullptr || PyErr_Occurred() != nullptr ? first : Py_NewRef(Py_None);
  });
}

// begin_margins(): buffers that are allocated from now on have empty memory around them.
PyObject* begin_margins(PyObject*, PyObject*) {
  margins::begin();
  Py_RETURN_NONE;
}

void each_tensor(PyObject* list, const std::function<void(Py_ssize_t, const at::Tensor&)>& see) {
  if (!PyList_Check(list)) {
    throw std::invalid_argument("anymps: no list of tensors");
  }
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* one = PyList_GET_ITEM(list, i);
    if (THPVariable_Check(one)) {
      see(i, THPVariable_Unpack(one));
    }
  }
}

using Copies = std::vector<margins::Copy>;
constexpr const char* kCopies = "anymps.copies";

void delete_copies(PyObject* capsule) {
  delete static_cast<Copies*>(PyCapsule_GetPointer(capsule, kCopies));
}

// begin_launch(tensors) -> copies: a kernel that may write these is to run; the margins of their buffers are marked. Raises in
// a forked child of a process that has used the device. Each one that returns needs an `end_launch`.
PyObject* begin_launch(PyObject*, PyObject* tensors) {
  return guarded([&]() -> PyObject* {
    enter_device();
    Copies copies;
    each_tensor(tensors, [&](Py_ssize_t, const at::Tensor& tensor) { margins::guard(tensor, copies); });
    if (C10_LIKELY(copies.empty())) {
      Py_RETURN_NONE;
    }
    PyObject* places = PyList_New(0);
    for (const margins::Copy& copy : copies) {
      const auto first = reinterpret_cast<uintptr_t>(copy.bytes), other = reinterpret_cast<uintptr_t>(copy.placement.start);
      PyObject* place = Py_BuildValue(
          "KKL", static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + copy.placement.nbytes),
          static_cast<long long>(other - first));
      if (place == nullptr || PyList_Append(places, place) != 0) {
        Py_XDECREF(place);
        Py_DECREF(places);
        return nullptr;
      }
      Py_DECREF(place);
    }
    return Py_BuildValue("NN", places, PyCapsule_New(new Copies(std::move(copies)), kCopies, &delete_copies));
  });
}

// end_launch(tensors, copies) -> (index in the list, offset of the first byte, how many bytes, bytes of the buffer) of the
// first buffer beside which something was written since `begin_launch`, or None.
PyObject* end_launch(PyObject*, PyObject* args) {
  PyObject *tensors, *begun;
  if (!PyArg_ParseTuple(args, "OO", &tensors, &begun)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    Copies none, *copies = &none;
    if (C10_UNLIKELY(begun != Py_None)) {
      PyObject* capsule = PyTuple_Check(begun) && PyTuple_GET_SIZE(begun) == 2 ? PyTuple_GET_ITEM(begun, 1) : Py_None;
      copies = static_cast<Copies*>(PyCapsule_GetPointer(capsule, kCopies));
      if (copies == nullptr) {
        return nullptr;
      }
      margins::carry_back(*copies);
    }
    PyObject* first = nullptr;
    each_tensor(tensors, [&](Py_ssize_t i, const at::Tensor& tensor) {
      const std::optional<margins::Stray> found = margins::stray(tensor, *copies);
      if (found && first == nullptr) {
        first = to_tuple(i, *found);
      }
    });
    return first != nullptr || PyErr_Occurred() != nullptr ? first : Py_NewRef(Py_None);
  });
}

}  // namespace

PyMethodDef shader_methods[] = {
    {"shaders_by_operator", shaders_by_operator, METH_NOARGS, "Whether the launch of a shader must go by an operator."},
    {"note_shader_error", note_shader_error, METH_VARARGS, "Notes what a kernel wrote into its error buffer."},
    {"offer_calls", offer_to_launcher, METH_VARARGS, "Has a launcher asked first for calls of these operators."},
    {"stray_store", stray_store, METH_O, "What PyTorch's kernels have stored beside buffers, or None."},
    {"begin_margins", begin_margins, METH_NOARGS, "Has new buffers allocated with empty memory around them."},
    {"begin_launch", begin_launch, METH_O, "Marks the empty memory around the buffers of tensors; refused in a forked child."},
    {"end_launch", end_launch, METH_VARARGS, "What was written beside the buffers of tensors, or None."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
