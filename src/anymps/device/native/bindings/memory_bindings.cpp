// Python's way to the allocator's books and to the ledger of buffers, and a trace on another Mac's allocator.
#include "bindings/bindings.h"

#include "bindings/guarded.h"
#include "device/device.h"
#include "model/model.h"
#include "recorder/recorder.h"

#include <cstdint>
#include <string>
#include <vector>

namespace anymps {
namespace {

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

PyObject* max_buffer_length(PyObject*, PyObject*) {
  return PyLong_FromUnsignedLongLong(books().max_buffer());
}

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

}  // namespace

PyMethodDef memory_methods[] = {
    {"memory_statistics", memory_statistics, METH_NOARGS, "The allocator's books."},
    {"reset_peak_memory", reset_peak_memory, METH_NOARGS, "Sets the peaks to the current values."},
    {"max_buffer_length", max_buffer_length, METH_NOARGS, "Bytes of the largest buffer."},
    {"ledger_start", ledger_start, METH_O, "Starts a new ledger; rows beyond the limit are only counted."},
    {"ledger_drain", ledger_drain, METH_O, "Takes the rows that ended since the last drain; with those still alive at the end."},
    {"ledger_state", ledger_state, METH_NOARGS, "Births and deaths so far, and rows that were only counted."},
    {"ledger_assign", ledger_assign, METH_VARARGS, "Says what the buffer of a storage is."},
    {"replay", replay_trace, METH_VARARGS, "What the allocator of another Mac makes of a trace of allocations."},
    {nullptr, nullptr, 0, nullptr}};

}  // namespace anymps
