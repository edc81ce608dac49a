// Who reads or writes the host side of a copy that is under way.
#pragma once

namespace anymps::nonblocking {

// Puts the observer in place, or takes it away: it costs every call, so it is there only while something is pending.
void watch();

}  // namespace anymps::nonblocking
