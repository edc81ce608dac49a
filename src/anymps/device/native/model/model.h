// What needs no torch: the allocator of a Mac, its random stream, and a trace of buffers on another Mac's allocator.
#pragma once

#include "model/heap.h"
#include "model/philox.h"
