// What PyTorch asks a backend for besides kernels: hooks, the device guard, streams.
#pragma once

namespace anymps {

struct MacFacts {
  unsigned macos_major = 15;
  unsigned macos_minor = 0;
};

// Installs hooks and guard. Called once.
void install_backend(const MacFacts& mac);

// Makes a CUDA build of torch answer that it was built without CUDA, so that mps can be its accelerator.
void hide_cuda();

// Of the Mac that is played.
bool is_macos_at_least(unsigned major, unsigned minor);

}  // namespace anymps
