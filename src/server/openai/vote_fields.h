// Hyper-scaling as a request: what a client asks of it.
#pragma once

#include <optional>

#include "server/openai/json_fields.h"

namespace winnow::server {

struct VoteRequest {
  int chains = 1;
  bool by_text = false;  // whole texts are compared, not the answers that they state
};

/// Reads winnow_votes; nullopt when it is absent. Throws ApiError.
std::optional<VoteRequest> parse_votes(const Fields& fields);

}  // namespace winnow::server
