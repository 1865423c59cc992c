// Bringing the header of a weight file of the Hub, not its values.
#pragma once

#include <atomic>
#include <cstdint>

#include "hub/http_client.h"
#include "hub/remote_repository.h"
#include "hub/repository_cache.h"

namespace winnow::hub {

/// Makes the blob of `file` as a sparse file: it has the file's size, its header and the few values
/// that describe the model (weight_header.h); the rest is a hole. `done` counts the bytes that
/// came. `cache` must be a temporary one. Throws Error, Stopped.
void download_header(HttpClient& client, const RemoteRepository& repository, const RemoteFile& file,
                     const RepositoryCache& cache, std::atomic<std::int64_t>& done);

}  // namespace winnow::hub
