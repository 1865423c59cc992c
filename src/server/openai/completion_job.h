// One completion request on its way through the engine and back to its client.
#pragma once

#include <memory>
#include <string>

#include "server/http/http.h"
#include "server/openai/completion_request.h"

namespace winnow::server {

class Service;

/// Starts `request`; the answer goes to `reply`, whole or as a stream of server-sent events. If the
/// client disconnects, it is cancelled. Throws ApiError when it cannot be started.
void start_completion(Service& service, CompletionRequest request, const std::string& id,
                      const std::shared_ptr<Reply>& reply);

}  // namespace winnow::server
