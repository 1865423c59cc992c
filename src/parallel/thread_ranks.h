// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include "parallel/communicator.h"

namespace winnow::parallel {

/// `size` members of one group, by rank; each may go to a thread of its own. `patience`: seconds.
std::vector<std::unique_ptr<Communicator>> make_thread_ranks(
    int size, double patience = Communicator::kPatience);

}  // namespace winnow::parallel
