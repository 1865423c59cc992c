// A model that several ranks run together, as one backend: rank 0's view.
#pragma once

#include <memory>

#include "engine/runner.h"
#include "parallel/communicator.h"

namespace winnow::engine {

/// `local` runs rank 0's part of `whole`; the other ranks obey (member.h). The group ends with the
/// backend. `ranks` must outlive it.
std::unique_ptr<Backend> make_ranked_backend(std::unique_ptr<const Backend> local,
                                             model::ModelSpec whole, parallel::Communicator& ranks);

}  // namespace winnow::engine
