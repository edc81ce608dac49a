// Python's way from Metal shaders to the tape and to late errors.
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

// Whether a launch must go by an operator: something records, or nothing is computed.
bool shaders_by_operator() {
  return recording() || !substrate().holds_data();
}

void note_shader_error(const std::string& kernel, const std::string& message) {
  delayed::note(Refusal::Index, mark_rule("metal::" + kernel), message);
}

void offer_to_launcher(PyObject* operators, PyObject* launcher) {
  std::unordered_set<std::string> offers;
  for_each(operators, [&](PyObject* one) { offers.insert(to_string(one)); });
  offer_calls(offers, launcher);
  canaries::begin();
}

PyObject* to_tuple(Py_ssize_t where, const margins::Stray& stray) {
  return Py_BuildValue(
      "(nLnn)", where, static_cast<long long>(stray.offset), static_cast<Py_ssize_t>(stray.count), static_cast<Py_ssize_t>(stray.nbytes));
}

PyObject* none_unless(PyObject* found) {
  return found != nullptr || PyErr_Occurred() != nullptr ? found : Py_NewRef(Py_None);
}

// (index in the list, offset of the first byte, how many bytes, bytes of the buffer) of the first buffer, of those that begin
// at these addresses, beside which a kernel of PyTorch's has stored something, or None.
PyObject* stray_store(PyObject* addresses) {
  PyObject* first = nullptr;
  Py_ssize_t where = 0;
  for_each(addresses, [&](PyObject* address) {
    const auto found = canaries::stray(PyLong_AsVoidPtr(address));
    if (found && first == nullptr) {
      first = to_tuple(where, *found);
    }
    ++where;
  });
  return none_unless(first);
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

// The copies: a kernel that may write these tensors is to run; the margins of their buffers are marked. Raises in a forked
// child of a process that has used the device. Each one that returns needs an `end_launch`.
PyObject* begin_launch(PyObject* tensors) {
  enter_device();
  Copies copies;
  each_tensor(tensors, [&](Py_ssize_t, const at::Tensor& tensor) { margins::guard(tensor, copies); });
  if (C10_LIKELY(copies.empty())) {
    Py_RETURN_NONE;
  }
  PyObject* places = list_of(copies, [](const margins::Copy& copy) {
    const auto first = reinterpret_cast<uintptr_t>(copy.bytes), other = reinterpret_cast<uintptr_t>(copy.placement.start);
    return Py_BuildValue(
        "KKL", static_cast<unsigned long long>(first), static_cast<unsigned long long>(first + copy.placement.nbytes),
        static_cast<long long>(other - first));
  });
  return Py_BuildValue("NN", places, PyCapsule_New(new Copies(std::move(copies)), kCopies, &delete_copies));
}

// What `stray_store` tells, of the first buffer beside which something was written since `begin_launch`, which gave `begun`.
PyObject* end_launch(PyObject* tensors, PyObject* begun) {
  Copies none, *copies = &none;
  if (C10_UNLIKELY(begun != Py_None)) {
    PyObject* capsule = PyTuple_Check(begun) && PyTuple_GET_SIZE(begun) == 2 ? PyTuple_GET_ITEM(begun, 1) : Py_None;
    copies = static_cast<Copies*>(PyCapsule_GetPointer(capsule, kCopies));
    raised_unless(copies != nullptr);
    margins::carry_back(*copies);
  }
  PyObject* first = nullptr;
  each_tensor(tensors, [&](Py_ssize_t i, const at::Tensor& tensor) {
    const std::optional<margins::Stray> found = margins::stray(tensor, *copies);
    if (found && first == nullptr) {
      first = to_tuple(i, *found);
    }
  });
  return none_unless(first);
}

}  // namespace

PyMethodDef shader_methods[] = {
    method<&shaders_by_operator>("shaders_by_operator", "Whether the launch of a shader must go by an operator."),
    method<&note_shader_error>("note_shader_error", "Notes what a kernel wrote into its error buffer; the next wait raises it."),
    method<&offer_to_launcher>("offer_calls", "Has a launcher asked first for calls of these operators."),
    method<&stray_store>("stray_store", "What PyTorch's kernels have stored beside buffers, or None."),
    method<&margins::begin>("begin_margins", "Has new buffers allocated with empty memory around them."),
    method<&answer_extensions>("answer_extensions", "Has extensions compile shaders by this function."),
    method<&begin_launch>("begin_launch", "Marks the empty memory around the buffers of tensors; refused in a forked child."),
    method<&end_launch>("end_launch", "What was written beside the buffers of tensors, or None."),
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
