// The answers of Python, and what each makes of the call.
#include "feeds/observed_exceptions.h"

#include "feeds/observed_waits.h"
#include "feeds/raised_calls.h"

#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace anymps::observer {
namespace {

PyObject* ask_raised = nullptr;  // guarded by the GIL

c10::SmallVector<const c10::TensorImpl*, 6> pointers_of(c10::ArrayRef<at::Tensor> tensors) {
  c10::SmallVector<const c10::TensorImpl*, 6> result;
  for (const at::Tensor& tensor : tensors) {
    result.push_back(tensor.unsafeGetTensorImpl());
  }
  return result;
}

// Asks Python what an exception means.
Answer ask(
    const std::string& operator_name, PyObject* exception, c10::ArrayRef<at::Tensor> inputs, bool wide_complex, const tape::Place& place) {
  PyObject* tensors = PyList_New(0);
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      PyObject* item = THPVariable_Wrap(tensor);
      PyList_Append(tensors, item);
      Py_XDECREF(item);
    }
  }
  PyObject* answer = nullptr;
  {
    const NoDynamo none;
    answer = PyObject_CallFunction(
        ask_raised, "sOOOIO", operator_name.c_str(), exception, tensors, wide_complex ? Py_True : Py_False, place.site,
        place.backward ? Py_True : Py_False);
  }
  Py_DECREF(tensors);
  if (answer == nullptr) {
    PyErr_WriteUnraisable(ask_raised);
    return Answer::Raised;
  }
  const long number = PyLong_AsLong(answer);
  Py_DECREF(answer);
  PyErr_Clear();
  return static_cast<Answer>(number);
}

// What is left of a call that raised, until its exception has arrived in Python.
struct Raised {
  Raised(const Operator& its_op, Span its_span, c10::SmallVector<at::Tensor, 4> its_inputs, bool wide)
      : op(its_op), span(std::move(its_span)), inputs(std::move(its_inputs)), wide_complex(wide) {}
  ~Raised() {
    if (span.has_value() && op.kind != Kind::Allocation) {
      span->raised();  // nobody has told what it was
    }
  }
  void found(PyObject* exception) {
    const Answer answer = ask_raised == nullptr ? Answer::Raised : ask(op.rule.name, exception, inputs, wide_complex, place);
    if (answer == Answer::Refused || answer == Answer::Foreign) {
      span.reset();
    } else if (answer == Answer::Late) {
      span->end(pointers_of(inputs), {});
      if (span->waits()) {
        waited();
      }
      span.reset();
    }
  }
  const Operator& op;
  std::optional<Span> span;
  c10::SmallVector<at::Tensor, 4> inputs;
  const bool wide_complex;
  const tape::Place place = tape::here();
};

}  // namespace

void set_asked(PyObject* raised) {
  Py_XDECREF(std::exchange(ask_raised, Py_XNewRef(raised)));
}

void expect_exception(const Operator& op, Span span, c10::SmallVector<at::Tensor, 4> inputs, bool wide_complex) {
  auto raised = std::make_shared<Raised>(op, std::move(span), std::move(inputs), wide_complex);
  raised_calls::expect([raised](PyObject* exception) { raised->found(exception); });
}

}  // namespace anymps::observer
