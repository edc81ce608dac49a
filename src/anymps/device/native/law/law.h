// What MPS does with a call: the rule of each operator, the backend's texts, the known faults.
#pragma once

#include "law/hazards.h"
#include "law/rule.h"
#include "law/rules.h"
#include "law/texts.h"
#include "law/value_checks.h"
