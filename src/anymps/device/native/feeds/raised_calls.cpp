// The thread gets a trace function for the moment in which the exception enters its innermost frame.
#include "feeds/raised_calls.h"

#include "recorder/recorder.h"

#include <utility>

namespace anymps::raised_calls {
namespace {

thread_local std::function<void(PyObject*)> expected;
thread_local Py_tracefunc former = nullptr;
thread_local PyObject* former_object = nullptr;

int trace(PyObject*, PyFrameObject* frame, int what, PyObject* argument) {
  if (what != PyTrace_EXCEPTION) {
    return 0;
  }
  PyObject *type, *value, *place;
  PyErr_Fetch(&type, &value, &place);
  const auto found = std::exchange(expected, nullptr);
  Py_tracefunc before = std::exchange(former, nullptr);
  PyObject* object = std::exchange(former_object, nullptr);
  PyEval_SetTrace(before, object);
  PyObject* exception = PyTuple_Check(argument) && PyTuple_GET_SIZE(argument) == 3 ? PyTuple_GET_ITEM(argument, 1) : nullptr;
  if (found && exception != nullptr) {
    found(exception);
  }
  const int answer = before == nullptr ? 0 : before(object, frame, what, argument);
  Py_XDECREF(object);
  if (answer == 0) {
    PyErr_Restore(type, value, place);
  }
  return answer;
}

}  // namespace

bool expect(std::function<void(PyObject*)> found) {
  if (PyGILState_GetThisThreadState() == nullptr) {
    return false;  // a thread of torch's own
  }
  GilGuard gil;
  PyThreadState* thread = PyThreadState_Get();
  PyFrameObject* frame = PyThreadState_GetFrame(thread);
  if (frame == nullptr) {
    return false;
  }
  Py_DECREF(frame);
  if (!expected) {
    former = thread->c_tracefunc;
    former_object = thread->c_traceobj;
    Py_XINCREF(former_object);
    PyEval_SetTrace(&trace, nullptr);
  }
  expected = std::move(found);
  return true;
}

void forget() {
  if (!expected) {
    return;
  }
  GilGuard gil;
  expected = nullptr;
  PyEval_SetTrace(std::exchange(former, nullptr), former_object);
  Py_CLEAR(former_object);
}

}  // namespace anymps::raised_calls
