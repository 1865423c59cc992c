// Ranks that are processes started by an MPI launcher (mpirun, srun).
#pragma once

#include <memory>

#include "parallel/communicator.h"
#include "parallel/launched_as.h"

namespace winnow::parallel {

/// Whether winnow was built with MPI.
bool has_mpi();

/// Joins the group of all processes that this process's launcher has started. To be called once per
/// process. Throws Error if winnow was built without MPI.
std::unique_ptr<Communicator> join_mpi_ranks();

}  // namespace winnow::parallel
