// RULER's variable tracking: a chain of assignments between lines of noise, after a solved
// example.
#pragma once

#include "eval/ruler/prompt.h"

namespace winnow::eval {

RulerPrompt make_tracking(const RulerSample& sample, const EncodeBegun& encode);

}  // namespace winnow::eval
