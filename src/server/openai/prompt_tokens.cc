#include "server/openai/prompt_tokens.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/error.h"
#include "server/http/api_error.h"
#include "server/openai/prompt_limits.h"
#include "server/openai/template_variables.h"
#include "server/openai/tools/tool_prompt.h"
#include "tokenizer/chat_prompt.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

// The model's fill-in-the-middle tokens, and whether the suffix comes first.
struct InfillTokens {
  std::string_view before;
  std::string_view behind;
  std::string_view middle;
  bool behind_first = false;
};
constexpr std::array kInfillTokens{
    InfillTokens{"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"},  // Qwen, CodeGemma
    InfillTokens{"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},        // StarCoder, Granite
    InfillTokens{"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},        // SantaCoder
    InfillTokens{"<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"},  // DeepSeek
    InfillTokens{"▁<PRE>", "▁<SUF>", "▁<MID>"},                          // Code Llama
    InfillTokens{"[PREFIX]", "[SUFFIX]", "", true},                      // Codestral
};

// Renders up to the end of the last message's content, which the answer continues.
std::string rendered_to_last_message(const ChatTemplate& chat, const ChatPrompt& prompt) {
  std::string text = chat.render(prompt.conversation.messages, false, prompt.variables);
  const auto content = prompt.conversation.messages.back().at("content").get<std::string>();
  const auto last = content.find_last_not_of(" \t\r\n");  // templates often trim it
  const std::string trimmed = last == std::string::npos ? "" : content.substr(0, last + 1);
  const auto at = trimmed.empty() ? std::string::npos : text.rfind(trimmed);
  if (at == std::string::npos) {
    throw ApiError(
        400, "the chat template changes the last message's content, so no answer can continue it",
        "continue_final_message", "chat_template_error");
  }
  const std::size_t length =
      text.compare(at, content.size(), content) == 0 ? content.size() : trimmed.size();
  text.resize(at + length);
  return text;
}

std::string text_of(const ChatTemplate& chat, const ChatPrompt& prompt) {
  return prompt.continue_final_message
             ? rendered_to_last_message(chat, prompt)
             : chat.render(prompt.conversation.messages, prompt.add_generation_prompt,
                           prompt.variables);
}

}  // namespace

PromptTokens::PromptTokens(const Tokenizer& tokenizer,
                           const std::optional<ChatTemplate>& chat_template, std::int32_t end_token,
                           PromptLimits limits)
    : tokenizer_(tokenizer),
      chat_template_(chat_template),
      end_token_(end_token),
      limits_(std::move(limits)) {}

void PromptTokens::check_length(std::size_t bytes, const std::string& param) const {
  check_text_bytes(bytes, limits_.context, param);
}

void PromptTokens::check_tokens(std::span<const std::int32_t> ids, const std::string& param) const {
  for (const std::int32_t id : ids) {
    if (!tokenizer_.has_token(id)) {
      throw ApiError(400,
                     fmt::format("{} holds {}, which is no token's id; the largest is {}", param,
                                 id, tokenizer_.vocab_size() - 1),
                     param, "invalid_value");
    }
  }
}

std::vector<std::int32_t> PromptTokens::text(std::string_view text, bool add_special,
                                             const std::string& param) const {
  check_length(text.size(), param);
  return tokenizer_.encode(text, {.add_special = add_special, .parse_special = true});
}

std::vector<std::int32_t> PromptTokens::infill(std::string_view before,
                                               std::string_view behind) const {
  check_length(before.size(), "prompt");
  check_length(behind.size(), "suffix");
  const auto append = [&](std::vector<std::int32_t>& tokens, std::string_view text) {
    const auto more = tokenizer_.encode(text, {.add_special = false, .parse_special = false});
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  for (const InfillTokens& names : kInfillTokens) {
    const auto before_token = tokenizer_.find(names.before);
    const auto behind_token = tokenizer_.find(names.behind);
    const auto middle_token = names.middle.empty() ? before_token : tokenizer_.find(names.middle);
    if (!before_token || !behind_token || !middle_token) {
      continue;
    }
    std::vector<std::int32_t> tokens = tokenizer_.encode("");  // BOS and the like
    tokens.push_back(names.behind_first ? *behind_token : *before_token);
    append(tokens, names.behind_first ? behind : before);
    tokens.push_back(names.behind_first ? *before_token : *behind_token);
    append(tokens, names.behind_first ? before : behind);
    if (!names.middle.empty()) {
      tokens.push_back(*middle_token);
    }
    return tokens;
  }
  throw ApiError(400, "suffix: this model has no fill-in-the-middle tokens", "suffix",
                 "unsupported_parameter");
}

std::vector<std::int32_t> PromptTokens::chat(const ChatPrompt& asked, bool add_special) const {
  std::vector<std::int32_t> tokens;
  with_template(asked, [&](const ChatTemplate& chat, const ChatPrompt& prompt) {
    tokens = !prompt.continue_final_message && !add_special
                 ? encode_chat(prompt.conversation, prompt.add_generation_prompt, chat, tokenizer_,
                               prompt.variables)
                 : tokenizer_.encode(text_of(chat, prompt),
                                     {.add_special = add_special, .parse_special = true});
  });
  return tokens;
}

std::string PromptTokens::chat_text(const ChatPrompt& asked) const {
  if (!asked.conversation.token_ids.empty()) {
    const std::string param =
        fmt::format("messages[{}].token_ids", asked.conversation.token_ids.size() - 1);
    throw ApiError(400, param + ": a prompt that is a text has no place for tokens", param,
                   "invalid_value");
  }
  std::string text;
  with_template(asked, [&](const ChatTemplate& chat, const ChatPrompt& prompt) {
    text = text_of(chat, prompt);
  });
  return text;
}

// Calls `use` with the template in effect and the prompt for it.
void PromptTokens::with_template(const ChatPrompt& asked, const UseTemplate& use) const {
  const Conversation& conversation = asked.conversation;
  if (!chat_template_ && !asked.chat_template) {
    throw ApiError(400, "this model has no chat template; use /v1/completions", "messages",
                   "no_chat_template");
  }
  check_length(kBytesPerToken * conversation.messages.size() + text_bytes(conversation.messages),
               "messages");
  check_length(text_bytes(asked.variables), "chat_template_kwargs");
  check_length(text_bytes(asked.tools.described), "tools");
  for (std::size_t i = 0; i < conversation.token_ids.size(); ++i) {
    check_tokens(conversation.token_ids[i], fmt::format("messages[{}].token_ids", i));
  }
  try {
    if (asked.chat_template) {
      with_own_template(asked, use);
    } else {
      use(*chat_template_, with_tools_shown(*chat_template_, asked));
    }
  } catch (const Error& error) {  // including raise_exception in a template
    throw ApiError(400, without_paths(error.what()), "messages", "chat_template_error");
  }
}

// Calls `use` with the request's template and the same variables as for the model's own template.
void PromptTokens::with_own_template(const ChatPrompt& asked, const UseTemplate& use) const {
  if (!limits_.trust_templates) {
    throw ApiError(400,
                   "chat_template: this server takes no templates from requests "
                   "(--trust-request-chat-template)",
                   "chat_template", "unsupported_parameter");
  }
  check_length(asked.chat_template->size(), "chat_template");
  ChatPrompt bound = asked;
  const auto bind = [&](const char* name, std::int32_t token) {
    if (token >= 0 && !bound.variables.contains(name)) {
      bound.variables[name] = tokenizer_.token_bytes(token, /*skip_special=*/false);
    }
  };
  const std::vector<std::int32_t> first = tokenizer_.encode("");
  bind("bos_token", first.empty() ? -1 : first.front());
  bind("eos_token", end_token_);
  const ChatTemplate own(*asked.chat_template);
  check_known_roles(own, bound);
  use(own, with_tools_shown(own, bound));
}

// Removes the model's path from messages to clients.
std::string PromptTokens::without_paths(std::string message) const {
  for (const std::filesystem::path& directory :
       {limits_.model_directory, std::filesystem::weakly_canonical(limits_.model_directory)}) {
    const std::string path = (directory / "").string();
    for (auto at = message.find(path); path.size() > 1 && at != std::string::npos;
         at = message.find(path)) {
      message.erase(at, path.size());
    }
  }
  return message;
}

}  // namespace winnow::server
