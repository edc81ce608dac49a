// Who tells the recorder of calls.
#pragma once

#include "feeds/observer.h"
#include "feeds/redirect.h"
