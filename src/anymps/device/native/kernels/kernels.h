// The kernels of the virtual device, for any operator and for single ones.
#pragma once

#include "kernels/boxed.h"
#include "kernels/kernel_table.h"
