// Copies of sequences in ordinary memory, for any runner.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "engine/host_copies.h"
#include "engine/runner.h"

namespace winnow::engine {

/// Copies are SavedSequences with a checksum. `runner` must outlive the result.
std::unique_ptr<HostCopies> make_saved_copies(Runner& runner, std::size_t max_bytes);

/// The entries of such a copy.
std::span<std::byte> entries_of(HostCopy& copy);

}  // namespace winnow::engine
