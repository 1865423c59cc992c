// What the launcher that started this process says about its rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

namespace winnow::parallel {

/// How the processes of a launch reach each other.
enum class Transport : std::uint8_t { mpi, tcp };

/// A process's rank and the number of ranks, set by its launcher.
struct LaunchedAs {
  int rank = 0;
  int size = 1;  // 2 or more
  /// The rank among the processes of this machine. nullopt: the launcher does not say.
  std::optional<int> local_rank = {};
  Transport transport = Transport::mpi;
  bool operator==(const LaunchedAs&) const = default;
};

/// Returns the value of an environment variable, or nullptr.
using Environment = std::function<const char*(const char* variable)>;

/// Read from the environment; nullopt: no launcher has started this process as one of several.
/// torchrun, PyTorchJob and scripts that set RANK and WORLD_SIZE mean TCP; Open MPI, MPICH, Intel
/// MPI and Slurm mean MPI. If variables of both are there, torchrun's count first, because it may
/// run inside an MPI or Slurm job and not the reverse; then those of MPI, if winnow was built with
/// it.
std::optional<LaunchedAs> launched_as();
/// The same for another environment. `has_mpi`: winnow was built with MPI.
std::optional<LaunchedAs> launched_as(const Environment& environment, bool has_mpi);

}  // namespace winnow::parallel
