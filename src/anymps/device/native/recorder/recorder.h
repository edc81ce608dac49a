// What is written of a program's calls: the tape, the ledger of buffers, call sites, and what is seen across several calls.
//
// It does not know the device: whoever sees the calls (a feed) tells it.
#pragma once

#include "recorder/lines/autograd.h"
#include "recorder/buffers/buffers.h"
#include "recorder/lines/call_sites.h"
#include "recorder/buffers/ledger.h"
#include "recorder/tape/marks.h"
#include "recorder/copies/nonblocking.h"
#include "recorder/copies/overwritten.h"
#include "recorder/lines/places.h"
#include "recorder/program/progress.h"
#include "recorder/program/python_bridge.h"
#include "recorder/copies/roundtrip.h"
#include "recorder/tape/span.h"
#include "recorder/tape/tape.h"
