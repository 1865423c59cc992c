// Ranks that an MPI launcher (mpirun, srun) has started, a process each.
#pragma once

#include <memory>
#include <optional>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// What a launcher tells a process about its place.
struct LaunchedAs {
  int rank = 0;
  int size = 1;
};

/// Read from the environment that Open MPI, MPICH and Slurm set; nullopt: nothing has started this
/// process as one of several.
std::optional<LaunchedAs> launched_as();

/// This process's end of the group of all that its launcher has started. Once per process. Throws
/// Error where winnow was built without MPI.
std::unique_ptr<Communicator> join_mpi_ranks();

}  // namespace winnow::parallel
