// Several ranks that run a model together, as one backend on rank 0.
#pragma once

#include <memory>

#include "engine/runner.h"
#include "parallel/communicator.h"

namespace winnow::engine {

/// `local` runs rank 0's part of `whole`; the other ranks execute its commands (member.h). The
/// group ends with the backend. `ranks` must outlive it.
std::unique_ptr<Backend> make_ranked_backend(std::unique_ptr<const Backend> local,
                                             model::ModelSpec whole, parallel::Communicator& ranks);

}  // namespace winnow::engine
