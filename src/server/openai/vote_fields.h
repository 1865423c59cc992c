// Hyper-scaling: the request's options.
#pragma once

#include <optional>

#include "server/openai/json_fields.h"

namespace winnow::server {

struct VoteRequest {
  int chains = 1;
  bool by_text = false;  // compares whole texts instead of the answers that they state
};

/// Reads winnow_votes; nullopt when it is absent. Throws ApiError.
std::optional<VoteRequest> parse_votes(const Fields& fields);

}  // namespace winnow::server
