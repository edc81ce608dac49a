// Python's way to the virtual device: its set-up, autograd's threads, streams and events, the default device.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "device/device.h"
#include "feeds/feeds.h"
#include "kernels/kernels.h"
#include "rules/rules.h"
#include "recorder/recorder.h"

#include <chrono>
#include <optional>
#include <string>
#include <thread>

namespace anymps {
namespace {

// install_device(machine): anymps.device._machine.Machine; after `configure`
PyObject* install_device(PyObject*, PyObject* machine) {
  return guarded([&]() -> PyObject* {
    const auto torch_minor = static_cast<int>(to_number(field(machine, "torch_minor")));
    const uint64_t recommended = to_number(field(machine, "recommended_max_memory"));
    const uint64_t max_buffer = to_number(field(machine, "max_buffer_length"));
    const std::string where = to_string(field(machine, "substrate"));
    unsigned major, minor;
    unpack(field(machine, "macos"), "II", &major, &minor);
    books().describe(torch_minor, recommended, max_buffer);
    const long gpu = PyLong_AsLong(field(machine, "gpu"));
    if (PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    choose_substrate(where, static_cast<int>(gpu));
    install_allocator();
    install_host_cache();
    learn_plain_keys();
    hide_cuda();
    install_backend({major, minor});
    install_redirect();
    watch_forks();
    Py_RETURN_NONE;
  });
}

PyObject* mark_first_use(PyObject*, PyObject* path) {
  return guarded([&]() -> PyObject* {
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(path, &length);
    if (text == nullptr) {
      return nullptr;
    }
    anymps::mark_first_use(std::string(text, static_cast<size_t>(length)));
    Py_RETURN_NONE;
  });
}

PyObject* allow_fallback(PyObject*, PyObject* value) {
  set_fallback_allowed(PyObject_IsTrue(value) == 1);
  Py_RETURN_NONE;
}

PyObject* hold_back_copies(PyObject*, PyObject* value) {
  nonblocking::hold_back(PyObject_IsTrue(value) == 1);
  Py_RETURN_NONE;
}

PyObject* keep_values(PyObject*, PyObject* bytes) {
  substrate().keep_values_up_to(PyLong_AsSize_t(bytes));
  Py_RETURN_NONE;
}

// host_fallbacks() -> how often each operator was computed by the CPU on copies, by name
PyObject* host_fallbacks(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    PyObject* counts = PyDict_New();
    for (const auto& [name, count] : substrate().host_fallbacks()) {
      PyObject* number = PyLong_FromLongLong(count);
      PyDict_SetItemString(counts, name.c_str(), number);
      Py_DECREF(number);
    }
    return counts;
  });
}

PyObject* fate(PyObject*, PyObject* name) {
  return guarded([&] { return PyLong_FromLong(fate_of(to_string(name))); });
}

PyObject* engine_started(PyObject*, PyObject*) {
  return guarded([] { return PyBool_FromLong(engine_has_started()); });
}

size_t count_thread_states() {
  size_t count = 0;
  for (PyThreadState* state = PyInterpreterState_ThreadHead(PyInterpreterState_Get()); state != nullptr;
       state = PyThreadState_Next(state)) {
    ++count;
  }
  return count;
}

// A device thread of the autograd engine takes the GIL when it ends. If the interpreter is gone by then, CPython ends the
// thread by force, which C++ answers with std::terminate: an abort after a script that went well. So the threads are
// ended while the interpreter lives, and waited for until their thread states are gone.
PyObject* end_device_threads(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    const size_t before = count_thread_states();
    size_t threads = 0;
    Py_BEGIN_ALLOW_THREADS
    threads = stop_engine();
    Py_END_ALLOW_THREADS
    for (int i = 0; i < 2000 && threads > 0 && count_thread_states() + threads > before; ++i) {
      Py_BEGIN_ALLOW_THREADS
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Py_END_ALLOW_THREADS
    }
    Py_RETURN_NONE;
  });
}

PyObject* set_engine(PyObject*, PyObject* original) {
  backward_thread::set_engine(original);
  Py_RETURN_NONE;
}

PyObject* run_backward(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&] { return backward_thread::run(args, kwargs); });
}

// watch_factories(functions, torch.utils._device.DeviceContext)
PyObject* watch_factories_of(PyObject*, PyObject* args) {
  PyObject *functions, *context;
  if (!PyArg_ParseTuple(args, "OO!", &functions, &PyType_Type, &context) || !watch_factories(functions, context)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

// rename_cuda(answer, functions, types)
PyObject* rename_cuda_in(PyObject*, PyObject* args) {
  PyObject *answer, *functions, *types;
  if (!PyArg_ParseTuple(args, "OOO", &answer, &functions, &types) || !rename_cuda(answer, functions, types)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* default_device(PyObject*, PyObject* device) {
  set_default_device(device);
  Py_RETURN_NONE;
}

PyObject* release_event(PyObject*, PyObject* id) {
  return guarded([&]() -> PyObject* {
    events::release(static_cast<uint32_t>(PyLong_AsUnsignedLong(id)));
    Py_RETURN_NONE;
  });
}

PyObject* current_stream(PyObject*, PyObject*) {
  return PyLong_FromLongLong(streams::current().id());
}

PyObject* set_current_stream(PyObject*, PyObject* id) {
  return guarded([&]() -> PyObject* {
    streams::set_current(PyLong_AsLongLong(id));
    Py_RETURN_NONE;
  });
}

// -1: the next one of the pool
PyObject* take_stream(PyObject*, PyObject* id) {
  return guarded([&]() -> PyObject* {
    const long long wanted = PyLong_AsLongLong(id);
    if (PyErr_Occurred() != nullptr) {
      return nullptr;
    }
    return PyLong_FromLongLong((wanted == -1 ? streams::next() : streams::by_id(wanted)).id());
  });
}

// take_late_error() -> (number of its refusal, message), or None
PyObject* take_late_error(PyObject*, PyObject*) {
  const std::optional<delayed::Taken> taken = delayed::take();
  if (!taken.has_value()) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("Is", taken->number, taken->message.c_str());
}

}  // namespace

PyMethodDef device_methods[] = {
    {"install_device", install_device, METH_O, "Installs the virtual device. Once a process."},
    {"mark_first_use", mark_first_use, METH_O, "Leaves an empty file there when this process first uses the device."},
    {"allow_fallback", allow_fallback, METH_O, "Whether operators without a kernel run on the CPU."},
    {"hold_back_copies", hold_back_copies, METH_O, "Whether copies to the CPU with non_blocking=True arrive at the next wait only."},
    {"keep_values_up_to", keep_values, METH_O, "How large a buffer may be whose values a substrate without data keeps, in bytes."},
    {"host_fallbacks", host_fallbacks, METH_NOARGS, "How often each operator was computed by the CPU on copies, on the cuda substrate."},
    {"fate", fate, METH_O, "The fate of a listed operator as its number, or -1."},
    {"engine_started", engine_started, METH_NOARGS, "Whether a backward has already run in this process."},
    {"end_device_threads", end_device_threads, METH_NOARGS, "Ends autograd's device threads, before the interpreter ends."},
    {"set_engine", set_engine, METH_O, "Says what runs a backward: torch's own run_backward."},
    {"run_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_backward)), METH_VARARGS | METH_KEYWORDS,
     "Runs a backward, on the calling thread if nothing in the graph can tell."},
    {"watch_factories", watch_factories_of, METH_VARARGS, "Makes the functions that make tensors look at a default device."},
    {"rename_cuda", rename_cuda_in, METH_VARARGS, "Asks for another name wherever functions and classes are given one of CUDA."},
    {"default_device", default_device, METH_O, "Sets the calling thread's default device for them; None for none."},
    {"release_event", release_event, METH_O, "Gives an event's id back to the pool."},
    {"current_stream", current_stream, METH_NOARGS, "The number of the calling thread's current stream."},
    {"set_current_stream", set_current_stream, METH_O, "Makes a stream, by its number, the calling thread's current one."},
    {"take_stream", take_stream, METH_O, "The number of a stream: that with the given number, or for -1 the pool's next."},
    {"take_late_error", take_late_error, METH_NOARGS, "Takes the error that the next wait would have raised, or None."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
