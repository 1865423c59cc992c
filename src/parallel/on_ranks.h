// Runs a function on every rank.
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Runs `work` on `count` ranks and returns when the ranks of this process are done. If a
/// launcher has started this process, it is one rank; else it runs all ranks, rank 0 on the calling
/// thread. Throws rank 0's error, or in a process its own rank's. Errors of other ranks name the
/// rank. `flag` names the source of `count`, for the Error if the launcher's count differs.
void on_ranks(int count, const char* flag, const std::function<void(Communicator&)>& work);

}  // namespace winnow::parallel
