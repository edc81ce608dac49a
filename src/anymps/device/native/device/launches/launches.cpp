// One call on its way to Python, where it becomes the launch of a kernel, and its results on their way back.
#include "device/launches/launches.h"

#include "patches/patches.h"
#include "recorder/recorder.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <memory>

namespace anymps {
namespace {

struct Release {
  void operator()(PyObject* object) const {
    Py_DECREF(object);
  }
};
using Object = std::unique_ptr<PyObject, Release>;

PyObject* the_launcher = nullptr;

// The C++ tensor behind a result. One that Python has made is given a second body over the same storage, so that the call
// is alone with it when Python has let go of the first.
at::Tensor to_tensor(PyObject* object, c10::ArrayRef<c10::IValue> arguments) {
  if (!THPVariable_Check(object)) {
    return at::Tensor();
  }
  const at::Tensor& tensor = THPVariable_Unpack(object);
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().is_same(tensor)) {
      return tensor;
    }
  }
  return at::Tensor(tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), false));
}

// The positions of tensors that are not on mps; of those, where it is asked for, the ones that are numbers of the program.
std::vector<int64_t> foreign_tensors(c10::ArrayRef<c10::IValue> given, bool numbers) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].isTensor() && given[i].toTensor().defined() && !given[i].toTensor().is_mps() &&
        (!numbers || given[i].toTensor().unsafeGetTensorImpl()->is_wrapped_number())) {
      positions.push_back(static_cast<int64_t>(i));
    }
  }
  return positions;
}

}  // namespace

void raise_python_error() {
  python_error error;
  error.persist();
  throw std::move(error);
}

void offer_calls(const std::unordered_set<std::string>& operators, PyObject* launcher) {
  patches::keep(the_launcher, launcher);
  each_rule([&](Rule& rule) {
    rule.offered = operators.count(rule.name) != 0;
  });
}

bool launch(const Rule& rule, torch::jit::Stack& stack, c10::ArrayRef<c10::IValue> given) {
  const size_t count = rule.op.schema().arguments().size();
  const c10::ArrayRef<c10::IValue> arguments = c10::ArrayRef<c10::IValue>(stack).slice(stack.size() - count);
  GilGuard gil;
  const NoDynamo none;
  c10::impl::GenericList values(c10::AnyType::get());
  for (const c10::IValue& argument : arguments) {
    values.push_back(argument);
  }
  const Object list(to_python(std::move(values), /*as_given=*/true));
  const Object foreign(to_python(foreign_tensors(given, false))), numbers(to_python(foreign_tensors(given, true)));
  if (list == nullptr || foreign == nullptr || numbers == nullptr) {
    PyErr_Clear();
    return false;
  }
  const Object results(PyObject_CallFunction(the_launcher, "sOOO", rule.name.c_str(), list.get(), foreign.get(), numbers.get()));
  if (results == nullptr) {
    raise_python_error();
  }
  if (!PyTuple_Check(results.get())) {
    return false;
  }
  torch::jit::Stack converted;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results.get()); ++i) {
    converted.emplace_back(to_tensor(PyTuple_GET_ITEM(results.get(), i), arguments));
  }
  torch::jit::drop(stack, count);
  stack.insert(stack.end(), std::make_move_iterator(converted.begin()), std::make_move_iterator(converted.end()));
  return true;
}

}  // namespace anymps
