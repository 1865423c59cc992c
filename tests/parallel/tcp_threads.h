// TCP ranks that are threads of one process, so that tests can look into them.
#pragma once

#include <functional>
#include <thread>
#include <vector>

#include "parallel/tcp_ranks.h"

namespace winnow::parallel::testing {

/// A group on a free port of this machine.
TcpGroup local_group(int size);

/// `group` as rank `rank` sees it.
inline TcpGroup as_rank(TcpGroup group, int rank) {
  group.rank = rank;
  return group;
}

/// Joins `group` as each of its ranks, and runs `body` on a thread for each.
inline void on_tcp_threads(const TcpGroup& group, const std::function<void(Communicator&)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < group.size; ++rank) {
    threads.emplace_back([&, rank] { body(*join_tcp_ranks(as_rank(group, rank))); });
  }
}

}  // namespace winnow::parallel::testing
