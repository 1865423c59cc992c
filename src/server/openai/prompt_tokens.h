// The tokens of prompts, within the server's limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/message_fields.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

struct PromptLimits {
  int context = 0;                             // maximum tokens of prompt and answer
  bool trust_templates = false;                // a request may contain a chat template
  std::filesystem::path model_directory = {};  // removed from all messages
};

/// May be used from many threads. Every error is an ApiError that names the invalid field.
class PromptTokens {
 public:
  /// `tokenizer` and `chat_template` must outlive this. `end_token`: the model's, -1: none.
  PromptTokens(const Tokenizer& tokenizer, const std::optional<ChatTemplate>& chat_template,
               std::int32_t end_token, PromptLimits limits);

  /// The tokens of a text in the field `param`.
  [[nodiscard]] std::vector<std::int32_t> text(std::string_view text, bool add_special,
                                               const std::string& param) const;
  /// The fill-in-the-middle prompt for two texts.
  [[nodiscard]] std::vector<std::int32_t> infill(std::string_view before,
                                                 std::string_view behind) const;
  /// The prompt of a conversation.
  [[nodiscard]] std::vector<std::int32_t> chat(const ChatPrompt& prompt, bool add_special) const;
  /// The prompt of a conversation as text; no message may contain tokens.
  [[nodiscard]] std::string chat_text(const ChatPrompt& prompt) const;
  /// Refuses a text that is far too long for the context: tokenising it would block a server thread
  /// for long.
  void check_length(std::size_t bytes, const std::string& param) const;
  /// Refuses ids that have no token.
  void check_tokens(std::span<const std::int32_t> ids, const std::string& param) const;

 private:
  using UseTemplate = std::function<void(const ChatTemplate&, const ChatPrompt&)>;
  void with_template(const ChatPrompt& asked, const UseTemplate& use) const;
  void with_own_template(const ChatPrompt& asked, const UseTemplate& use) const;
  [[nodiscard]] std::string without_paths(std::string message) const;

  const Tokenizer& tokenizer_;
  const std::optional<ChatTemplate>& chat_template_;
  std::int32_t end_token_;
  PromptLimits limits_;
};

}  // namespace winnow::server
