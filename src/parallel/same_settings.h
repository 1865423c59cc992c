// Checks that ranks were started with the same settings.
#pragma once

#include <string>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Throws Error on a rank whose `settings`, one per line, differ from rank 0's. The error names the
/// rank and the line.
void require_same_settings(Communicator& ranks, const std::string& settings);

}  // namespace winnow::parallel
