// Types of request fields: used to check them, and for /openapi.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "server/openai/field_table.h"
#include "server/openai/value_type.h"

namespace winnow::server {

/// The JSON Schema of a field that is no alias; null is among its types.
nlohmann::ordered_json field_schema(const FieldRule& rule, Endpoint endpoint);

/// The same, parsed. The rule must be one of the table.
const ValueType& field_type(const FieldRule& rule, Endpoint endpoint);

}  // namespace winnow::server
