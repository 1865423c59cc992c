// The roles that messages of a chat may have.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "tokenizer/chat_template.h"

namespace winnow {

/// For errors: "expected ...".
inline constexpr std::string_view kExpectedRoles =
    "system, developer, user, assistant, tool, function, or a role that the chat template names";

/// Whether `role` is usual, or the template that render() selects for these variables names it.
/// Many templates take any other word for the user. Throws Error like ChatTemplate::names().
bool is_role(std::string_view role, const ChatTemplate& chat,
             const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

/// Throws Error that names the first message without a role, or with one that is none.
void require_roles(const nlohmann::ordered_json& messages, const ChatTemplate& chat,
                   const nlohmann::ordered_json& variables = nlohmann::ordered_json::object());

}  // namespace winnow
