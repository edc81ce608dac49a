// Python's way to the virtual device: its set-up, autograd's threads, streams and events, the default device; to the allocator's books
// and the ledger of buffers, and a trace on another Mac's allocator.
#include "bindings/guarded.h"

#include "compiled/compiled.h"
#include "device/device.h"
#include "feeds/feeds.h"
#include "kernels/kernels.h"
#include "rules/rules.h"
#include "recorder/recorder.h"
#include "model/model.h"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace anymps {
namespace {

// `machine`: anymps.device._rule_tables.Machine; after `configure`
void install_device(PyObject* machine) {
  const auto torch_minor = static_cast<int>(to_number(field(machine, "torch_minor")));
  const uint64_t recommended = to_number(field(machine, "recommended_max_memory"));
  const uint64_t max_buffer = to_number(field(machine, "max_buffer_length"));
  const std::string where = to_string(field(machine, "substrate"));
  const int gpu = FromPython<int>::read(field(machine, "gpu"));
  unsigned major, minor;
  unpack(field(machine, "macos"), "II", &major, &minor);
  books().describe(torch_minor, recommended, max_buffer);
  choose_substrate(where, gpu);
  install_allocator();
  install_host_cache();
  learn_plain_keys();
  hide_cuda();
  install_backend({major, minor});
  install_redirect();
  watch_forks();
}

void keep_values(size_t bytes) {
  substrate().keep_values_up_to(bytes);
}

// How often each operator was computed by the CPU on copies, by name.
PyObject* host_fallbacks() {
  PyObject* counts = PyDict_New();
  for (const auto& [name, count] : substrate().host_fallbacks()) {
    PyObject* number = to_object(count);
    PyDict_SetItemString(counts, name.c_str(), number);
    Py_DECREF(number);
  }
  return counts;
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
void end_device_threads() {
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
}

PyObject* run_backward(PyObject*, PyObject* args, PyObject* kwargs) {
  return guarded([&] { return backward_thread::run(args, kwargs); });
}

// `context`: torch.utils._device.DeviceContext
void watch_factories_of(PyObject* functions, PyObject* context) {
  raised_unless(watch_factories(functions, context));
}

void rename_cuda_in(PyObject* answer, PyObject* functions, PyObject* types) {
  raised_unless(rename_cuda(answer, functions, types));
}

int64_t current_stream() {
  return streams::current().id();
}

int64_t take_stream(int64_t id) {
  return (id == -1 ? streams::next() : streams::by_id(id)).id();
}

// (number of its refusal, message), or None
PyObject* take_late_error() {
  const std::optional<delayed::Taken> taken = delayed::take();
  return taken.has_value() ? Py_BuildValue("Is", taken->number, taken->message.c_str()) : Py_NewRef(Py_None);
}

PyObject* memory_statistics() {
  HeapModel& model = books().model();
  auto row = [](const Statistic& s) { return Py_BuildValue("(KKKK)", s.current, s.peak, s.allocated, s.freed); };
  return Py_BuildValue(
      "{s:N,s:N,s:K,s:K,s:K}", "allocated", row(model.allocated()), "reserved", row(model.reserved()), "driver", model.driver(),
      "live_blocks", model.live_blocks(), "peak", model.peak_current());
}

void reset_peak_memory() {
  books().model().reset_peak();
}

uint64_t max_buffer_length() {
  return books().max_buffer();
}

// Packed rows.
PyObject* ledger_drain(bool with_living) {
  const std::string rows = ledger::drain(with_living);
  return PyBytes_FromStringAndSize(rows.data(), static_cast<Py_ssize_t>(rows.size()));
}

// (events so far, rows that were only counted)
PyObject* ledger_state() {
  return Py_BuildValue(
      "(KK)", static_cast<unsigned long long>(ledger::events()), static_cast<unsigned long long>(ledger::dropped()));
}

// `address` is that of a StorageImpl; one that is not on mps is left alone.
void ledger_assign(uint64_t address, uint8_t role, uint32_t module) {
  auto* storage = reinterpret_cast<c10::StorageImpl*>(static_cast<uintptr_t>(address));
  if (Buffer* buffer = buffer_of(storage->data_ptr())) {
    buffer->assign(role, module);
  }
}

// replay(trace: bytes of int64, torch_minor, recommended_max, max_buffer, high_ratio, low_ratio)
//   -> (peak allocated, peak reserved, failed place or -1, message)
PyObject* replay_trace(PyObject*, PyObject* args) {
  return guarded([&] {
    Py_buffer buffer;
    HeapConfig config;
    unsigned long long recommended, max_buffer;
    unpack(args, "y*iKKdd", &buffer, &config.torch_minor, &recommended, &max_buffer, &config.high_ratio, &config.low_ratio);
    const auto* numbers = static_cast<const int64_t*>(buffer.buf);
    const std::vector<int64_t> trace(numbers, numbers + buffer.len / static_cast<Py_ssize_t>(sizeof(int64_t)));
    PyBuffer_Release(&buffer);
    config.recommended_max = recommended;
    config.max_buffer = max_buffer;
    config.generation = generation_of(config.torch_minor);
    const Replayed result = replay(config, trace);
    return Py_BuildValue(
        "(KKLs)", static_cast<unsigned long long>(result.peak_allocated), static_cast<unsigned long long>(result.peak_reserved),
        static_cast<long long>(result.failed), result.message.c_str());
  });
}

}  // namespace

PyMethodDef device_methods[] = {
    method<&install_device>("install_device", "Installs the virtual device. Once a process."),
    method<&mark_first_use>("mark_first_use", "Leaves an empty file there when this process first uses the device."),
    method<&set_fallback_allowed>("allow_fallback", "Whether operators without a kernel run on the CPU."),
    method<&nonblocking::hold_back>("hold_back_copies", "Whether copies to the CPU with non_blocking=True arrive at the next wait only."),
    method<&keep_values>("keep_values_up_to", "How large a buffer may be whose values a substrate without data keeps, in bytes."),
    method<&host_fallbacks>("host_fallbacks", "How often each operator was computed by the CPU on copies, on the cuda substrate."),
    method<&fate_of>("fate", "The fate of a listed operator as its number, or -1."),
    method<&engine_has_started>("engine_started", "Whether a backward has already run in this process."),
    method<&end_device_threads>("end_device_threads", "Ends autograd's device threads, before the interpreter ends."),
    method<&backward_thread::set_engine>("set_engine", "Says what runs a backward: torch's own run_backward."),
    {"run_backward", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(run_backward)), METH_VARARGS | METH_KEYWORDS,
     "Runs a backward, on the calling thread if nothing in the graph can tell."},
    method<&watch_factories_of>("watch_factories", "Makes the functions that make tensors look at a default device."),
    method<&compiled::install_runner>("install_package_runner", "Has torch load packages of AOTInductor for mps."),
    method<&rename_cuda_in>("rename_cuda", "Asks for another name wherever functions and classes are given one of CUDA."),
    method<&set_default_device>("default_device", "Sets the calling thread's default device for them; None for none."),
    method<&events::release>("release_event", "Gives an event's id back to the pool."),
    method<&current_stream>("current_stream", "The number of the calling thread's current stream."),
    method<&streams::set_current>("set_current_stream", "Makes a stream, by its number, the calling thread's current one."),
    method<&take_stream>("take_stream", "The number of a stream: that with the given number, or for -1 the pool's next."),
    method<&take_late_error>("take_late_error", "Takes the error that the next wait would have raised, or None."),
    method<&memory_statistics>("memory_statistics", "The allocator's books."),
    method<&reset_peak_memory>("reset_peak_memory", "Sets the peaks to the current values."),
    method<&max_buffer_length>("max_buffer_length", "Bytes of the largest buffer."),
    method<&ledger::start>("ledger_start", "Starts a new ledger; rows beyond the limit are only counted."),
    method<&ledger_drain>("ledger_drain", "Takes the rows that ended since the last drain; with those still alive at the end."),
    method<&ledger_state>("ledger_state", "Births and deaths so far, and rows that were only counted."),
    method<&ledger_assign>("ledger_assign", "Says what the buffer of a storage is."),
    {"replay", replay_trace, METH_VARARGS, "What the allocator of another Mac makes of a trace of allocations."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
