// One piece of work on every rank.
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// Runs `work` on `count` ranks and returns when those of this process are done: this process is
/// one of those that an MPI launcher has started, or else it runs all ranks, rank 0 on the calling
/// thread. Throws what rank 0 threw, or a process's own rank; the Error of another rank names it.
/// `flag`: where `count` comes from, for the Error when the launcher has started another number.
void on_ranks(int count, const char* flag, const std::function<void(Communicator&)>& work);

}  // namespace winnow::parallel
