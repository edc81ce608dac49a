// Handlers of signals that a program has in Python: they run while a long kernel keeps Python's main thread, too.
#pragma once

namespace anymps_rt {

constexpr int kRaised = 1000;  // in the place of a signal: such a handler raised an exception

// Whether this thread is the process's first one, on which Python runs handlers.
bool is_first_thread();
// Whether this thread runs handlers now, within a launch.
bool is_asking();
// Has Python run the handlers of signals that have come. False if one raised, which `anymps_rt_raise` raises again.
bool ask_python();
// The same on another stack, from its top downwards.
bool ask_python_on(char* top);

}  // namespace anymps_rt

extern "C" {
// PyGILState_Ensure, PyGILState_Release, PyErr_CheckSignals, PyErr_Fetch and PyErr_Restore. Without them nobody is asked.
void anymps_rt_python(void* const* functions);
// Raises, in Python, what a handler raised. To be called with the interpreter's lock held.
void anymps_rt_raise();
}
