// The parts of the Python module `_native`.
#pragma once

#include "bindings/hazard_bindings.h"
#include "bindings/observer_bindings.h"
