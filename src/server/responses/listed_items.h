// Lists the input items of a stored response, as in OpenAI's API.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

/// The page of `items` that a query (limit, order, after) selects. Messages have parts of text,
/// and each item has an id that begins with `response_id`'s. `ignored` gets the names of other
/// parameters. Throws ApiError.
nlohmann::ordered_json listed_items(const nlohmann::ordered_json& items,
                                    std::string_view response_id, std::string_view query,
                                    std::vector<std::string>& ignored);

}  // namespace winnow::server
