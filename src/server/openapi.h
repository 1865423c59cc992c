// A description of the server's requests for tools that read OpenAPI.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace winnow::server {

/// Made of the routes and of the table of fields, by which requests are answered and read.
nlohmann::ordered_json openapi_document();

}  // namespace winnow::server
