// What MPS does with a call: the rule of each operator, the backend's texts, the known faults.
#pragma once

#include "rules/hazards.h"
#include "rules/rule.h"
#include "rules/rule_list.h"
#include "rules/texts.h"
#include "rules/value_checks.h"
