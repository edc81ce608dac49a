// Who reads or writes the host side of a copy that is under way.
#pragma once

namespace anymps::nonblocking {

// Puts the eyes in place, or takes them away: both cost every call, so they are there only while something is pending.
void watch();

}  // namespace anymps::nonblocking
