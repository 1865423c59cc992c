#include "parallel/mpi_ranks.h"

#include "base/error.h"

namespace winnow::parallel {

std::unique_ptr<Communicator> join_mpi_ranks() {
  fail(
      "several ranks were started, but winnow was built without MPI: install libopenmpi-dev and "
      "build it again");
}

}  // namespace winnow::parallel
