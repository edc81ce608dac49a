// Who tells the recorder of calls.
#pragma once

#include "feeds/number_check.h"
#include "feeds/observed_waits.h"
#include "feeds/observer.h"
#include "feeds/redirect.h"
