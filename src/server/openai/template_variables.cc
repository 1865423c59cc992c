#include "server/openai/template_variables.h"

#include <algorithm>

#include "server/http/api_error.h"

namespace winnow::server {

void check_variables(const ChatTemplate& chat, const ChatPrompt& prompt,
                     std::vector<std::string>& ignored) {
  for (const std::string& name : prompt.given_variables) {
    const bool is_set = name == "messages" || name == "add_generation_prompt";
    if (is_set || !chat.names(name, prompt.variables)) {
      ignored.push_back("chat_template_kwargs." + name);
    }
  }
  const auto documents = prompt.variables.find("documents");
  const bool has_documents =
      documents != prompt.variables.end() && !documents->empty() &&
      std::ranges::find(prompt.given_variables, "documents") == prompt.given_variables.end();
  if (has_documents && !chat.names("documents", prompt.variables)) {
    throw ApiError(400, "documents: this model's chat template has no place for them", "documents",
                   "unsupported_parameter");
  }
}

}  // namespace winnow::server
