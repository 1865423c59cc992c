// Input items of the Responses API, and their conversion to chat messages.
#pragma once

#include <nlohmann/json.hpp>

namespace winnow::server {

/// The items of an input: a text becomes a user message. Throws ApiError.
nlohmann::ordered_json input_items(const nlohmann::ordered_json& input);

/// Adds items to a chat as messages. Throws ApiError that names the invalid item.
void add_messages(const nlohmann::ordered_json& items, nlohmann::ordered_json& messages);

}  // namespace winnow::server
