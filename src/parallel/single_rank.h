// The communicator of a process that is alone.
#pragma once

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Rank 0 of 1: nothing waits, and sums are what they were. It may be shared.
Communicator& single_rank();

}  // namespace winnow::parallel
