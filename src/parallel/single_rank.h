// The communicator of a process that runs alone.
#pragma once

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Rank 0 of 1: calls do not wait, and sums leave values as they are. It may be shared.
Communicator& single_rank();

}  // namespace winnow::parallel
