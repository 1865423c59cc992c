#include "parallel/process_ranks.h"

#include "parallel/mpi_ranks.h"
#include "parallel/tcp_ranks.h"

namespace winnow::parallel {

std::unique_ptr<Communicator> join_process_ranks(const LaunchedAs& launched) {
  return launched.transport == Transport::mpi ? join_mpi_ranks()
                                              : join_tcp_ranks(tcp_group(launched));
}

}  // namespace winnow::parallel
