// Copies of sequences in the host's memory, of which each rank holds its part.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/host_copies.h"
#include "engine/ranks/ranked_sequence.h"

namespace winnow::engine {

/// Each rank gets a part of `max_bytes` in proportion to its KV heads. A copy exists on all ranks
/// or on none, and rank 0 decides what is dropped. `group` and the runner must outlive the result.
std::unique_ptr<HostCopies> make_ranked_copies(Group& group, const RunnerSettings& runner,
                                               std::size_t max_bytes);

}  // namespace winnow::engine
