// What is written of a program's calls: the tape, the ledger of buffers, call sites, and what is seen across several calls.
//
// It does not know the device: whoever sees the calls (a feed) tells it.
#pragma once

#include "recorder/autograd.h"
#include "recorder/buffers.h"
#include "recorder/call_sites.h"
#include "recorder/faults.h"
#include "recorder/generated_lines.h"
#include "recorder/ledger.h"
#include "recorder/marks.h"
#include "recorder/module_call.h"
#include "recorder/nonblocking.h"
#include "recorder/overwritten.h"
#include "recorder/places.h"
#include "recorder/progress.h"
#include "recorder/python_bridge.h"
#include "recorder/roundtrip.h"
#include "recorder/span.h"
#include "recorder/tape.h"
#include "recorder/watched_call.h"
