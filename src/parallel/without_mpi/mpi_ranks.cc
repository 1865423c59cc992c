#include "parallel/mpi_ranks.h"

#include "base/error.h"

namespace winnow::parallel {

bool has_mpi() {
  return false;
}

std::unique_ptr<Communicator> join_mpi_ranks() {
  fail(
      "mpirun or srun has started several ranks, but winnow was built without MPI: install "
      "libopenmpi-dev and build it again, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for "
      "each rank, which then use TCP");
}

}  // namespace winnow::parallel
