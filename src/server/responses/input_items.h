// What a request of the Responses API says: items, and the messages of a chat that they are.
#pragma once

#include <nlohmann/json.hpp>

namespace winnow::server {

/// The items of an input: a text is a message of the user. Throws ApiError.
nlohmann::ordered_json input_items(const nlohmann::ordered_json& input);

/// Adds what items say to a chat. Throws ApiError that names the item at fault.
void add_messages(const nlohmann::ordered_json& items, nlohmann::ordered_json& messages);

}  // namespace winnow::server
