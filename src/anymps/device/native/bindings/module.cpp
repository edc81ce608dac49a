// The Python module `_native`: configuration, the tape, phases and modules, and the few bindings torch lacks off a Mac.
#include <Python.h>

#include "bindings/guarded.h"
#include "bindings/hazard_bindings.h"
#include "bindings/law_bindings.h"
#include "bindings/observer_bindings.h"
#include "bindings/shader_bindings.h"
#include "device/device.h"
#include "feeds/feeds.h"
#include "kernels/kernels.h"
#include "law/law.h"
#include "model/model.h"
#include "recorder/recorder.h"

#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace anymps {
namespace {

// install_device(torch_minor, recommended_max, max_buffer, macos_major, macos_minor, substrate): after `configure`
PyObject* install_device(PyObject*, PyObject* args) {
  int torch_minor;
  unsigned macos_major, macos_minor;
  const char* where;
  unsigned long long recommended, max_buffer;
  if (!PyArg_ParseTuple(args, "iKKIIs", &torch_minor, &recommended, &max_buffer, &macos_major, &macos_minor, &where)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    books().describe(torch_minor, recommended, max_buffer);
    choose_substrate(where);
    install_allocator();
    learn_plain_keys();
    hide_cuda();
    install_backend({macos_major, macos_minor});
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

PyObject* allow_fallback(PyObject*, PyObject* value) {
  set_fallback_allowed(PyObject_IsTrue(value) == 1);
  Py_RETURN_NONE;
}

PyObject* hold_back_copies(PyObject*, PyObject* value) {
  nonblocking::hold_back(PyObject_IsTrue(value) == 1);
  Py_RETURN_NONE;
}

PyObject* fate(PyObject*, PyObject* name) {
  return guarded([&] { return PyLong_FromLong(fate_of(to_string(name))); });
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

PyObject* memory_statistics(PyObject*, PyObject*) {
  return guarded([] {
    HeapModel& model = books().model();
    const Statistic allocated = model.allocated();
    const Statistic reserved = model.reserved();
    auto row = [](const Statistic& s) { return Py_BuildValue("(KKKK)", s.current, s.peak, s.allocated, s.freed); };
    return Py_BuildValue(
        "{s:N,s:N,s:K,s:K,s:K}", "allocated", row(allocated), "reserved", row(reserved), "driver", model.driver(), "live_blocks",
        model.live_blocks(), "peak", model.peak_current());
  });
}

PyObject* reset_peak_memory(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    books().model().reset_peak();
    Py_RETURN_NONE;
  });
}

PyObject* reset_accumulated_memory(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    books().model().reset_accumulated();
    Py_RETURN_NONE;
  });
}

PyObject* keep_values(PyObject*, PyObject* bytes) {
  substrate().keep_values_up_to(PyLong_AsSize_t(bytes));
  Py_RETURN_NONE;
}

PyObject* max_buffer_length(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(books().max_buffer());
}

// --- the ledger

PyObject* ledger_start(PyObject*, PyObject* limit) {
  ledger::start(PyLong_AsUnsignedLongLong(limit));
  Py_RETURN_NONE;
}

// ledger_drain(with_living) -> packed rows
PyObject* ledger_drain(PyObject*, PyObject* with_living) {
  return guarded([&] {
    const std::string rows = ledger::drain(PyObject_IsTrue(with_living) == 1);
    return PyBytes_FromStringAndSize(rows.data(), static_cast<Py_ssize_t>(rows.size()));
  });
}

// ledger_state() -> (events so far, rows that were only counted)
PyObject* ledger_state(PyObject*, PyObject*) {
  return Py_BuildValue(
      "(KK)", static_cast<unsigned long long>(ledger::events()), static_cast<unsigned long long>(ledger::dropped()));
}

// ledger_assign(address of a StorageImpl, role, module): says what a storage is; one that is not on mps is left alone
PyObject* ledger_assign(PyObject*, PyObject* args) {
  unsigned long long address;
  int role;
  unsigned module;
  if (!PyArg_ParseTuple(args, "KiI", &address, &role, &module)) {
    return nullptr;
  }
  auto* storage = reinterpret_cast<c10::StorageImpl*>(static_cast<uintptr_t>(address));
  if (Buffer* buffer = buffer_of(storage->data_ptr())) {
    buffer->assign(static_cast<uint8_t>(role), module);
  }
  Py_RETURN_NONE;
}

// replay(trace: bytes of int64, torch_minor, recommended_max, max_buffer, high_ratio, low_ratio)
//   -> (peak allocated, peak reserved, failed place or -1, message)
PyObject* replay_trace(PyObject*, PyObject* args) {
  Py_buffer buffer;
  HeapConfig config;
  unsigned long long recommended, max_buffer;
  if (!PyArg_ParseTuple(args, "y*iKKdd", &buffer, &config.torch_minor, &recommended, &max_buffer, &config.high_ratio, &config.low_ratio)) {
    return nullptr;
  }
  const auto* numbers = static_cast<const int64_t*>(buffer.buf);
  const std::vector<int64_t> trace(numbers, numbers + buffer.len / static_cast<Py_ssize_t>(sizeof(int64_t)));
  PyBuffer_Release(&buffer);
  config.recommended_max = recommended;
  config.max_buffer = max_buffer;
  return guarded([&] {
    config.generation = generation_of(config.torch_minor);
    const Replayed result = replay(config, trace);
    return Py_BuildValue(
        "(KKLs)", static_cast<unsigned long long>(result.peak_allocated), static_cast<unsigned long long>(result.peak_reserved),
        static_cast<long long>(result.failed), result.message.c_str());
  });
}

// --- the tape

// tape_start(limit, observed)
PyObject* tape_start(PyObject*, PyObject* args) {
  unsigned long long limit;
  int by_observer = 0;
  if (!PyArg_ParseTuple(args, "K|p", &limit, &by_observer)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    nonblocking::recording_starts();
    roundtrip::recording_starts();
    overwritten::forget_all();
    forget_sites();
    forget_told();
    tape::start(limit, by_observer != 0);
    Py_RETURN_NONE;
  });
}

PyObject* tape_stop(PyObject*, PyObject*) {
  return guarded([]() -> PyObject* {
    nonblocking::recording_ends();
    roundtrip::recording_ends();
    overwritten::forget_all();
    tape::stop();
    Py_RETURN_NONE;
  });
}

PyObject* tape_pause(PyObject*, PyObject* pause) {
  tape::pause(PyObject_IsTrue(pause) == 1);
  Py_RETURN_NONE;
}

PyObject* tape_sparse(PyObject*, PyObject* on) {
  progress::sparse(PyObject_IsTrue(on) == 1);
  Py_RETURN_NONE;
}

// watch_factories(functions, torch.utils._device.DeviceContext)
PyObject* watch_factories_of(PyObject*, PyObject* args) {
  PyObject *functions, *context;
  if (!PyArg_ParseTuple(args, "OO!", &functions, &PyType_Type, &context) || !watch_factories(functions, context)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* default_device(PyObject*, PyObject* device) {
  set_default_device(device);
  Py_RETURN_NONE;
}

// take_late_error() -> (number of its refusal, message), or None
PyObject* take_late_error(PyObject*, PyObject*) {
  const std::optional<delayed::Taken> taken = delayed::take();
  if (!taken.has_value()) {
    Py_RETURN_NONE;
  }
  return Py_BuildValue("Is", taken->number, taken->message.c_str());
}

PyObject* tape_pending(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(tape::pending());
}

// drain(first_operator) -> (entries, signatures, steps, sites, operator names from first_operator on, dropped, rounds)
PyObject* tape_drain(PyObject*, PyObject* first) {
  return guarded([&]() -> PyObject* {
    Drained drained;
    Py_BEGIN_ALLOW_THREADS
    drained = tape::drain();
    Py_END_ALLOW_THREADS
    PyObject* signatures = PyList_New(0);
    for (const SignatureText& s : drained.signatures) {
      PyObject* row = Py_BuildValue("(IIiss)", s.id, s.op, int(s.fate), s.inputs.c_str(), s.outputs.c_str());
      PyList_Append(signatures, row);
      Py_DECREF(row);
    }
    PyObject* steps = PyList_New(0);
    for (const StepMark& s : drained.steps) {
      PyObject* row = Py_BuildValue("(ILL)", s.step, static_cast<long long>(s.start_ns), static_cast<long long>(s.end_ns));
      PyList_Append(steps, row);
      Py_DECREF(row);
    }
    PyObject* rounds = PyList_New(0);
    for (const Round& r : drained.rounds) {
      PyObject* row = Py_BuildValue(
          "(iIILL)", int(r.kind), r.key, r.site, static_cast<long long>(r.start_ns), static_cast<long long>(r.end_ns));
      PyList_Append(rounds, row);
      Py_DECREF(row);
    }
    PyObject* sites = PyList_New(0);
    for (const SiteText& s : take_new_sites()) {
      PyObject* row = Py_BuildValue("(Isiss)", s.id, s.file.c_str(), s.line, s.function.c_str(), s.via.c_str());
      PyList_Append(sites, row);
      Py_DECREF(row);
    }
    PyObject* names = PyList_New(0);
    for (const std::string& name : rule_names(PyLong_AsSize_t(first))) {
      PyObject* text = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
      PyList_Append(names, text);
      Py_DECREF(text);
    }
    return Py_BuildValue(
        "(y#NNNNKN)", drained.entries.data(), static_cast<Py_ssize_t>(drained.entries.size()), signatures, steps, sites, names,
        static_cast<unsigned long long>(drained.dropped), rounds);
  });
}

PyObject* tape_totals(PyObject*, PyObject*) {
  return guarded([] {
    PyObject* rows = PyList_New(0);
    for (const Total& t : tape::totals()) {
      PyObject* row = Py_BuildValue(
          "(IIIiiiKLL)", t.signature, t.module, t.site, int(t.phase), int(t.wait), int(t.direction),
          static_cast<unsigned long long>(t.count), static_cast<long long>(t.duration_ns), static_cast<long long>(t.moved_bytes));
      PyList_Append(rows, row);
      Py_DECREF(row);
    }
    return rows;
  });
}

PyObject* set_phase(PyObject*, PyObject* phase) {
  return PyLong_FromLong(progress::set_phase(static_cast<uint8_t>(PyLong_AsLong(phase))));
}

PyObject* end_step(PyObject*, PyObject*) {
  if (recording()) {
    progress::end_step();
  }
  Py_RETURN_NONE;
}

// note_round(kind, key, start)
PyObject* note_round(PyObject*, PyObject* args) {
  int kind;
  unsigned int key;
  long long start;
  if (!PyArg_ParseTuple(args, "iIL", &kind, &key, &start)) {
    return nullptr;
  }
  if (recording()) {
    progress::note_round(static_cast<RoundKind>(kind), key, start);
  }
  Py_RETURN_NONE;
}

PyObject* clock_ns(PyObject*, PyObject*) {
  return PyLong_FromLongLong(now_ns());
}

// note_pair(name, line, other line, duration_ns = 0): a mark
PyObject* note_pair(PyObject*, PyObject* args) {
  const char* name;
  unsigned int site, other;
  long long duration = 0;
  if (!PyArg_ParseTuple(args, "sII|L", &name, &site, &other, &duration)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    tape::note_pair(mark_rule(name), site, other, 0, duration);
    Py_RETURN_NONE;
  });
}

// mark(name, phase, start_ns, end_ns, wait)
PyObject* mark(PyObject*, PyObject* args) {
  const char* name;
  int phase, wait;
  long long start, end;
  if (!PyArg_ParseTuple(args, "siLLi", &name, &phase, &start, &end, &wait)) {
    return nullptr;
  }
  return guarded([&]() -> PyObject* {
    tape::mark(mark_rule(name), static_cast<uint8_t>(phase), start, end, static_cast<Wait>(wait));
    Py_RETURN_NONE;
  });
}

// site(file, line, function, via) -> number
PyObject* site(PyObject*, PyObject* args) {
  const char *file, *function, *via;
  int line;
  if (!PyArg_ParseTuple(args, "siss", &file, &line, &function, &via)) {
    return nullptr;
  }
  return guarded([&] { return PyLong_FromUnsignedLong(intern_site(file, line, function, via)); });
}

PyObject* here(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLong(current_place());
}

PyObject* internal(PyObject*, PyObject* file) {
  return guarded([&] { return PyBool_FromLong(is_internal(to_string(file))); });
}

// set_callbacks(refusal, surfaced, copied, module)
PyObject* set_callbacks(PyObject*, PyObject* args) {
  PyObject *refusal, *surfaced, *copied, *module;
  if (!PyArg_ParseTuple(args, "OOOO", &refusal, &surfaced, &copied, &module)) {
    return nullptr;
  }
  auto keep = [](PyObject*& slot, PyObject* value) {
    PyObject* former = slot;
    slot = value == Py_None ? nullptr : Py_NewRef(value);
    Py_XDECREF(former);
  };
  keep(callbacks().refusal, refusal);
  keep(callbacks().surfaced, surfaced);
  keep(callbacks().copied, copied);
  keep(callbacks().module, module);
  Py_RETURN_NONE;
}

// watch_calls(original, around) -> callable
PyObject* watch_calls(PyObject*, PyObject* args) {
  PyObject *original, *around;
  if (!PyArg_ParseTuple(args, "OO", &original, &around)) {
    return nullptr;
  }
  return make_watched_call(original, around);
}

PyObject* watch_modules(PyObject*, PyObject* function) {
  if (!watch_module_calls(function)) {
    return nullptr;
  }
  Py_RETURN_NONE;
}

PyObject* unwatch_modules(PyObject*, PyObject*) {
  unwatch_module_calls();
  Py_RETURN_NONE;
}

PyObject* forget_module(PyObject*, PyObject* address) {
  forget_module_number(static_cast<PyObject*>(PyLong_AsVoidPtr(address)));
  PyErr_Clear();
  Py_RETURN_NONE;
}

PyObject* forget_modules(PyObject*, PyObject*) {
  forget_module_numbers();
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"configure", configure_from_python, METH_O, "Says what MPS does with a call. Once a process, before all else."},
    {"install_device", install_device, METH_VARARGS, "Installs the virtual device. Once a process."},
    {"mark_first_use", mark_first_use, METH_O, "Leaves an empty file there when this process first uses the device."},
    {"engine_started", engine_started, METH_NOARGS, "Whether a backward has already run in this process."},
    {"end_device_threads", end_device_threads, METH_NOARGS, "Ends autograd's device threads, before the interpreter ends."},
    {"set_engine", set_engine, METH_O, "Says what runs a backward: torch's own run_backward."},
    {"run_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_backward)), METH_VARARGS | METH_KEYWORDS,
     "Runs a backward, on the calling thread if nothing in the graph can tell."},
    {"allow_fallback", allow_fallback, METH_O, "Whether operators without a kernel run on the CPU."},
    {"hold_back_copies", hold_back_copies, METH_O, "Whether copies to the CPU with non_blocking=True arrive at the next wait only."},
    {"set_hazards", set_hazards_from_python, METH_O, "Puts these known faults of MPS in force, and no others."},
    {"hazards_of", hazards_of_from_python, METH_VARARGS, "The known faults in force that a call would meet."},
    {"shaders_by_operator", shaders_by_operator, METH_NOARGS, "Whether the launch of a shader must go by an operator."},
    {"note_shader_error", note_shader_error, METH_VARARGS, "Notes what a kernel wrote into its error buffer."},
    {"fate", fate, METH_O, "The fate of a listed operator as its number, or -1."},
    {"release_event", release_event, METH_O, "Gives an event's id back to the pool."},
    {"current_stream", current_stream, METH_NOARGS, "The number of the calling thread's current stream."},
    {"set_current_stream", set_current_stream, METH_O, "Makes a stream, by its number, the calling thread's current one."},
    {"take_stream", take_stream, METH_O, "The number of a stream: that with the given number, or for -1 the pool's next."},
    {"memory_statistics", memory_statistics, METH_NOARGS, "The allocator's books."},
    {"reset_peak_memory", reset_peak_memory, METH_NOARGS, "Sets the peaks to the current values."},
    {"reset_accumulated_memory", reset_accumulated_memory, METH_NOARGS, "Sets the accumulated statistics to zero."},
    {"keep_values_up_to", keep_values, METH_O, "How large a buffer may be whose values a substrate without data keeps, in bytes."},
    {"max_buffer_length", max_buffer_length, METH_NOARGS, "Bytes of the largest buffer."},
    {"ledger_start", ledger_start, METH_O, "Starts a new ledger; rows beyond the limit are only counted."},
    {"ledger_drain", ledger_drain, METH_O, "Takes the rows that ended since the last drain; with those still alive at the end."},
    {"ledger_state", ledger_state, METH_NOARGS, "Births and deaths so far, and rows that were only counted."},
    {"ledger_assign", ledger_assign, METH_VARARGS, "Says what the buffer of a storage is."},
    {"replay", replay_trace, METH_VARARGS, "What the allocator of another Mac makes of a trace of allocations."},
    {"tape_start", tape_start, METH_VARARGS, "Starts a new tape; entries beyond the limit are only counted."},
    {"tape_stop", tape_stop, METH_NOARGS, "Stops the tape."},
    {"tape_pause", tape_pause, METH_O, "Pauses the running tape, or lets it go on."},
    {"tape_sparse", tape_sparse, METH_O, "Leaves plain calls out from now on, or takes them in again."},
    {"watch_factories", watch_factories_of, METH_VARARGS, "Makes the functions that make tensors look at a default device."},
    {"default_device", default_device, METH_O, "Sets the calling thread's default device for them; None for none."},
    {"take_late_error", take_late_error, METH_NOARGS, "Takes the error that the next wait would have raised, or None."},
    {"tape_pending", tape_pending, METH_NOARGS, "Entries not drained yet."},
    {"tape_drain", tape_drain, METH_O, "Takes what was written since the last drain."},
    {"tape_totals", tape_totals, METH_NOARGS, "Sums over everything drained so far."},
    {"set_phase", set_phase, METH_O, "Sets the calling thread's phase and returns the former one."},
    {"end_step", end_step, METH_NOARGS, "Ends a training step."},
    {"note_round", note_round, METH_VARARGS, "Notes what a loop does once a round, and that it ends now."},
    {"clock_ns", clock_ns, METH_NOARGS, "The tape's clock."},
    {"mark", mark, METH_VARARGS, "Writes an entry of our own."},
    {"note_pair", note_pair, METH_VARARGS, "Writes a mark for a line and another one that belongs to it."},
    {"site", site, METH_VARARGS, "The number of a place in the user's code."},
    {"current_site", here, METH_NOARGS, "The number of the place in the user's code that is running."},
    {"is_internal", internal, METH_O, "Whether a file is torch's or anymps' own, hence no place in the user's code."},
    {"set_callbacks", set_callbacks, METH_VARARGS, "What to call for refusals and for new modules."},
    {"watch_calls", watch_calls, METH_VARARGS, "A callable in the place of another one that tells of each call and leaves no frame."},
    {"watch_modules", watch_modules, METH_O, "Notes which module runs, given torch.nn.Module.__call__."},
    {"unwatch_modules", unwatch_modules, METH_NOARGS, "Notes it no longer."},
    {"forget_module", forget_module, METH_O, "Forgets a module that is gone, by its address."},
    {"forget_modules", forget_modules, METH_NOARGS, "Forgets all modules."},
    {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_native", "The native core of anymps.", -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace anymps

PyMODINIT_FUNC PyInit__native() {
  PyObject* module = PyModule_Create(&anymps::definition);
  if (module != nullptr && PyModule_AddFunctions(module, anymps::observer_methods) != 0) {
    Py_CLEAR(module);
  }
  return module;
}
