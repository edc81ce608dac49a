// Who tells the recorder of calls.
#pragma once

#include "feeds/redirect.h"
