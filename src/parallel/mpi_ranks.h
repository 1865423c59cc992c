// Ranks that are processes started by an MPI launcher (mpirun, srun).
#pragma once

#include <memory>
#include <optional>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// A process's rank and the number of ranks, set by its launcher.
struct LaunchedAs {
  int rank = 0;
  int size = 1;
  std::optional<int> local_rank;  // among the processes of its machine, if the launcher says so
};

/// Read from the environment that Open MPI, MPICH and Slurm set; nullopt: no launcher has started
/// this process.
std::optional<LaunchedAs> launched_as();

/// Joins the group of all processes that this process's launcher has started. To be called once per
/// process. Throws Error if winnow was built without MPI.
std::unique_ptr<Communicator> join_mpi_ranks();

}  // namespace winnow::parallel
