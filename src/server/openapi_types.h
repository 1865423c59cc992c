// Types of request fields that may be several things, for the OpenAPI document.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/openai/field_table.h"

namespace winnow::server {

/// The JSON Schema of a field of kind any, null among its types.
nlohmann::ordered_json free_type(const FieldRule& rule, std::uint8_t endpoint);

}  // namespace winnow::server
