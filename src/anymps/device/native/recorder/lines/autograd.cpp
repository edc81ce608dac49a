// Questions to the autograd engine.
#include "recorder/lines/autograd.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstring>
#include <typeinfo>

namespace anymps {

bool in_backward() {
  return torch::autograd::get_current_graph_task_id() != -1;
}

bool is_python(const torch::autograd::Node& node) {
  // Its class is in a header that takes long to compile, so it goes by name.
  return std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE") == 0;
}

bool current_backward(BackwardNode& node) {
  if (!in_backward()) {
    return false;
  }
  const auto current = torch::autograd::get_current_node();
  if (current) {
    node.sequence = current->sequence_nr();
    node.thread = current->thread_id();
    node.python = is_python(*current);
  }
  return true;
}

namespace {

// The engine makes its thread pool when it starts, and keeps it protected. A protected member may be named as a template
// argument of an explicit instantiation, which is all that is needed to look at it.
bool has_thread_pool(torch::autograd::Engine& engine);
size_t device_thread_count(torch::autograd::Engine& engine);

template <auto Member>
struct ThreadPoolReader {
  friend bool has_thread_pool(torch::autograd::Engine& engine) {
    return (engine.*Member) != nullptr;
  }
};
template struct ThreadPoolReader<&torch::autograd::Engine::thread_pool_shared_>;

template <auto Member>
struct QueueReader {
  friend size_t device_thread_count(torch::autograd::Engine& engine) {
    return (engine.*Member).size();
  }
};
template struct QueueReader<&torch::autograd::Engine::device_ready_queues_>;

}  // namespace

bool engine_has_started() {
  return has_thread_pool(torch::autograd::Engine::get_default_engine());
}

size_t stop_engine() {
  auto& engine = torch::autograd::Engine::get_default_engine();
  if (!has_thread_pool(engine)) {
    return 0;
  }
  const size_t threads = device_thread_count(engine);
  engine.stop();
  return threads;
}

}  // namespace anymps
