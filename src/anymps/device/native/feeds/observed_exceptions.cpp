// The answers of Python, and what each makes of the call.
#include "feeds/observed_exceptions.h"

#include "feeds/observed_values.h"
#include "locks/locks.h"

#include <torch/csrc/autograd/python_variable.h>

#include <memory>
#include <mutex>
#include <optional>

namespace anymps::observer {
namespace {

PyObject* ask_raised = nullptr;  // guarded by the GIL

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
      span->end(pointers(inputs), {});
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

thread_local std::shared_ptr<Raised> expected;
thread_local Py_tracefunc former = nullptr;
thread_local PyObject* former_object = nullptr;

// What the thread has for the moment in which the exception enters its innermost frame.
int trace(PyObject*, PyFrameObject* frame, int what, PyObject* argument) {
  if (what != PyTrace_EXCEPTION) {
    return 0;
  }
  PyObject *type, *value, *place;
  PyErr_Fetch(&type, &value, &place);
  const auto raised = std::exchange(expected, nullptr);
  Py_tracefunc before = std::exchange(former, nullptr);
  PyObject* object = std::exchange(former_object, nullptr);
  PyEval_SetTrace(before, object);
  PyObject* exception = PyTuple_Check(argument) && PyTuple_GET_SIZE(argument) == 3 ? PyTuple_GET_ITEM(argument, 1) : nullptr;
  if (raised && exception != nullptr) {
    raised->found(exception);
  }
  const int answer = before == nullptr ? 0 : before(object, frame, what, argument);
  Py_XDECREF(object);
  if (answer == 0) {
    PyErr_Restore(type, value, place);
  }
  return answer;
}

}  // namespace

void set_asked(PyObject* raised) {
  Py_XDECREF(std::exchange(ask_raised, Py_XNewRef(raised)));
}

void expect_exception(const Operator& op, Span span, c10::SmallVector<at::Tensor, 4> inputs, bool wide_complex) {
  auto raised = std::make_shared<Raised>(op, std::move(span), std::move(inputs), wide_complex);
  if (PyGILState_GetThisThreadState() == nullptr) {
    return;  // a thread of torch's own
  }
  GilGuard gil;
  PyThreadState* thread = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  if (frame == nullptr) {
    return;
  }
  Py_DECREF(frame);
  if (!expected) {
    former = thread->c_tracefunc;
    former_object = thread->c_traceobj;
    Py_XINCREF(former_object);
    PyEval_SetTrace(&trace, nullptr);
  }
  expected = std::move(raised);
}

void forget_exception() {
  if (!expected) {
    return;
  }
  GilGuard gil;
  expected = nullptr;
  PyEval_SetTrace(std::exchange(former, nullptr), former_object);
  Py_CLEAR(former_object);
}

// What is remembered from one wait to the next.
namespace {

struct Checked {
  Mutex mutex;
  std::string first;
  uint32_t site = 0;
  bool any = false, same = true;
};
Checked& checked() {
  static auto* the_checked = new Checked;
  return *the_checked;
}

}  // namespace

void waited() {
  nonblocking::waited();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.any = false;
}

void note_checked(const Operator& op) {
  if (!op.checks_indices) {
    return;
  }
  const uint32_t here = current_place();
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  c.same = !c.any || (c.same && c.site == here);
  c.first = c.any ? c.first : op.rule.name;
  c.site = here;
  c.any = true;
}

std::pair<std::string, uint32_t> take_checked() {
  Checked& c = checked();
  std::lock_guard<std::mutex> lock(c.mutex);
  const bool any = std::exchange(c.any, false);
  return any ? std::make_pair(c.first, c.same ? c.site : 0) : std::make_pair(std::string(), uint32_t(0));
}

}  // namespace anymps::observer
