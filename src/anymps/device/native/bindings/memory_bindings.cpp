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

PyMethodDef memory_methods[] = {
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
