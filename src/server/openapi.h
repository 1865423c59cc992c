// A description of the server's requests for tools that read OpenAPI.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/model_task.h"

namespace winnow::server {

/// Made of the routes that a model of this task has, and of the table of fields, by which requests
/// are answered and read.
nlohmann::ordered_json openapi_document(const ModelTask& task, bool serves_states);

}  // namespace winnow::server
