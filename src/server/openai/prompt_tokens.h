// The tokens of prompts, within what the server takes.
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
  int context = 0;                             // tokens of prompt and answer
  bool trust_templates = false;                // a request may bring a chat template of its own
  std::filesystem::path model_directory = {};  // that no message names
};

/// May be used from many threads. Everything throws ApiError that names the field at fault.
class PromptTokens {
 public:
  /// `tokenizer` and `chat_template` must outlive this. `end_token`: the model's, -1: none.
  PromptTokens(const Tokenizer& tokenizer, const std::optional<ChatTemplate>& chat_template,
               std::int32_t end_token, PromptLimits limits);

  /// The tokens of a text in the field `param`.
  [[nodiscard]] std::vector<std::int32_t> text(std::string_view text, bool add_special,
                                               const std::string& param) const;
  /// The tokens that ask for what stands between two texts.
  [[nodiscard]] std::vector<std::int32_t> infill(std::string_view before,
                                                 std::string_view behind) const;
  /// The tokens that ask for an answer to a conversation.
  [[nodiscard]] std::vector<std::int32_t> chat(const ChatPrompt& prompt, bool add_special) const;
  /// The text that asks for an answer to a conversation; no message may bring tokens.
  [[nodiscard]] std::string chat_text(const ChatPrompt& prompt) const;
  /// A text that is far too long for the context is refused: to make tokens of it would keep a
  /// thread of the server for long.
  void check_length(std::size_t bytes, const std::string& param) const;
  /// Ids that are no tokens' are refused.
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
