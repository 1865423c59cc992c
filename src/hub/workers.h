// Requests to the Hub on several connections at once.
#pragma once

#include <cstddef>
#include <functional>

#include "hub/environment.h"
#include "hub/http_client.h"

namespace winnow::hub {

/// Calls work(client, i) for i below `count` on several threads, each with its own connection, and
/// meanwhile tick() on this thread, several times a second. The first failure stops the other
/// threads, and is thrown.
void work_in_parallel(const Environment& environment, std::size_t count,
                      const std::function<void(HttpClient&, std::size_t)>& work,
                      const std::function<void()>& tick);

}  // namespace winnow::hub
