#include "tokenizer/chat_roles.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow {

bool is_role(std::string_view role, const ChatTemplate& chat,
             const nlohmann::ordered_json& variables) {
  constexpr std::array<std::string_view, 6> kUsual{"system",    "developer", "user",
                                                   "assistant", "tool",      "function"};
  return std::ranges::find(kUsual, role) != kUsual.end() ||
         (!role.empty() && chat.names(role, variables));
}

void require_roles(const nlohmann::ordered_json& messages, const ChatTemplate& chat,
                   const nlohmann::ordered_json& variables) {
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const auto role = messages[i].find("role");
    require(role != messages[i].end() && role->is_string(), "messages[{}] has no role; expected {}",
            i, kExpectedRoles);
    const auto& text = role->get_ref<const std::string&>();
    require(is_role(text, chat, variables), "messages[{}].role is {}; expected {}", i,
            in_quotes(text), kExpectedRoles);
  }
}

}  // namespace winnow
