// What the autograd engine can tell: which node runs on this thread, and whether the engine has already started.
#pragma once

#include <cstddef>
#include <cstdint>

namespace torch::autograd {
struct Node;
}

namespace anymps {

struct BackwardNode {
  uint64_t sequence = 0;
  uint64_t thread = 0;
  bool python = false;  // a torch.autograd.Function: its backward has lines of its own
};

// True on a thread that runs a backward; then `node` names the forward operator it belongs to.
bool current_backward(BackwardNode& node);

// True on a thread that runs a backward.
bool in_backward();

// Whether a node is a torch.autograd.Function of Python, whose backward is the user's code.
bool is_python(const torch::autograd::Node& node);

// True once a backward has run in this process: from then on the engine has no place for a new device's thread.
bool engine_has_started();

// Ends the engine's device threads and returns how many there were. For the end of the process: no backward after it.
size_t stop_engine();

}  // namespace anymps
