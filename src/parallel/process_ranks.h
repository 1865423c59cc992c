// Ranks that are processes, whatever has started them.
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/launched_as.h"

namespace winnow::parallel {

/// Joins the group of all processes that this process's launcher has started: by MPI
/// (mpi_ranks.h) or by TCP (tcp_ranks.h).
std::unique_ptr<Communicator> join_process_ranks(const LaunchedAs& launched);

}  // namespace winnow::parallel
