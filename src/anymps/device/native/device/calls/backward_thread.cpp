// Which graphs have nothing in them that could tell the thread of their backward, and running those on the calling one.
#include "device/calls/backward_thread.h"

#include "recorder/recorder.h"

#include <ATen/SequenceNumber.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <atomic>
#include <unordered_set>
#include <vector>

namespace anymps::backward_thread {
namespace {

using torch::autograd::Node;

PyObject* engine = nullptr;

// The newest autograd node that may have tensors saved through hooks, plus one. Nodes are numbered by thread; the largest number
// of any thread is on the safe side.
std::atomic<uint64_t> hooked_until{0};

bool can_tell(Node& node) {
  if (is_python(node) || node.sequence_nr() < hooked_until.load(std::memory_order_relaxed)) {
    return true;
  }
  if (!node.pre_hooks().empty() || !node.post_hooks().empty() || !node.tensor_pre_hooks().empty() ||
      node.tensor_post_acc_grad_hooks() != nullptr) {
    return true;
  }
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (node.input_metadata(i).is_tensor_subclass()) {
      return true;
    }
  }
  return false;
}

bool any_can_tell(std::vector<Node*> open) {
  std::unordered_set<Node*> seen(open.begin(), open.end());
  seen.reserve(512);
  while (!open.empty()) {
    Node* node = open.back();
    open.pop_back();
    if (can_tell(*node)) {
      return true;
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.function && seen.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
  return false;
}

// `outputs` is the first argument of run_backward: a tuple of tensors, or of places in a graph, which are left to torch.
bool nobody_can_tell(PyObject* outputs) {
  if (!PyTuple_Check(outputs) || torch::profiler::impl::profilerEnabled() || c10::impl::TorchDispatchModeTLS::any_modes_set()) {
    return false;
  }
  std::vector<Node*> roots;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(outputs); ++i) {
    PyObject* output = PyTuple_GET_ITEM(outputs, i);
    if (!THPVariable_Check(output)) {
      return false;
    }
    if (const auto& root = THPVariable_Unpack(output).grad_fn()) {
      roots.push_back(root.get());
    }
  }
  return !any_can_tell(std::move(roots));
}

class OnCallingThread {
 public:
  OnCallingThread() : former_(state().get_multithreading_enabled()), recorded_(recording()) {
    state().set_multithreading_enabled(false);
    if (recorded_) {
      progress::enter_backward();
    }
  }
  ~OnCallingThread() {
    if (recorded_) {
      progress::leave_module();
    }
    state().set_multithreading_enabled(former_);
  }

 private:
  static c10::AutogradState& state() {
    return c10::AutogradState::get_tls_state();
  }
  const WithoutLines without_lines_;  // nothing of Python's runs there
  const bool former_;
  const bool recorded_;
};

}  // namespace

void set_engine(PyObject* original) {
  engine = Py_NewRef(original);
}

void note_saved_tensor_hooks_slowly() {
  const uint64_t next = at::sequence_number::peek();
  uint64_t known = hooked_until.load(std::memory_order_relaxed);
  while (known < next && !hooked_until.compare_exchange_weak(known, next, std::memory_order_relaxed)) {
  }
}

PyObject* run(PyObject* args, PyObject* kwargs) {
  // A backward inside another one stays where that one runs.
  if (in_backward() || PyTuple_GET_SIZE(args) == 0 || !nobody_can_tell(PyTuple_GET_ITEM(args, 0))) {
    return PyObject_Call(engine, args, kwargs);
  }
  OnCallingThread guard;
  return PyObject_Call(engine, args, kwargs);
}

}  // namespace anymps::backward_thread
