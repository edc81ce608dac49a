// The kernels of the virtual device, for any operator and for single ones.
#pragma once

#include "kernels/redirect/boxed.h"
#include "kernels/redirect/kernel_table.h"
