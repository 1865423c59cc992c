// The types of the fields of requests: what they are checked against, and what /openapi.json says.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/openai/field_table.h"
#include "server/openai/value_type.h"

namespace winnow::server {

/// The JSON Schema of a field that is no alias, null among its types.
nlohmann::ordered_json field_schema(const FieldRule& rule, Endpoint endpoint);

/// The same, read. The rule must be one of the table.
const ValueType& field_type(const FieldRule& rule, Endpoint endpoint);

}  // namespace winnow::server
