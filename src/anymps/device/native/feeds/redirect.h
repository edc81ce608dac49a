// The feed on the virtual device: a kernel for every operator, each of which writes what it does on the tape.
#pragma once

namespace anymps {

// Decides which kernel each operator with a rule gets, and registers it with the dispatcher. Called once.
void install_redirect();

}  // namespace anymps
