// An OpenAPI description of the server's requests.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/model_task.h"

namespace winnow::server {

/// Generated from the routes of a model with this task and from the table of fields, the same data
/// that parse and answer requests.
nlohmann::ordered_json openapi_document(const ModelTask& task, bool serves_states);

}  // namespace winnow::server
