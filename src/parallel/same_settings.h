// Ranks compare how they were started.
#pragma once

#include <string>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Throws Error on a rank whose `settings`, a line each, are not those of rank 0: it names rank and
/// line.
void require_same_settings(Communicator& ranks, const std::string& settings);

}  // namespace winnow::parallel
