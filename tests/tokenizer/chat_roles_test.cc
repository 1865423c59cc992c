#include "tokenizer/chat_roles.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace winnow {
namespace {

const char* const kWithCritic =
    "{% for m in messages %}{% if m.role == 'critic' %}!{% endif %}{{ m.content }}{% endfor %}";

TEST(ChatRoles, AreUsualOrNamedByTheTemplate) {
  const ChatTemplate chat(kWithCritic);
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "critic"}) {
    EXPECT_TRUE(is_role(role, chat)) << role;
  }
  for (const char* role : {"asistant", "usr", "User", "", "critics", "robot"}) {
    EXPECT_FALSE(is_role(role, chat)) << role;
  }
}

TEST(ChatRoles, TheMessageIsNamed) {
  const ChatTemplate chat(kWithCritic);
  const auto complaint = [&](const char* role) {
    try {
      require_roles({{{"role", "user"}, {"content", "a"}}, {{"role", role}, {"content", "b"}}},
                    chat);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(complaint("critic"), "");
  EXPECT_EQ(complaint("usr"),
            "messages[1].role is \"usr\"; expected system, developer, user, assistant, tool, "
            "function, or a role that the chat template names");
  EXPECT_THROW(require_roles({{{"content", "a"}}}, chat), Error);
  EXPECT_THROW(require_roles({{{"role", 1}}}, chat), Error);
}

}  // namespace
}  // namespace winnow
