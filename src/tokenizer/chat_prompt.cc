#include "tokenizer/chat_prompt.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace winnow {
namespace {

using Ids = std::vector<std::int32_t>;

constexpr Tokenizer::EncodeOptions kAsRendered{.add_special = false, .parse_special = true};

// A placeholder for a message's content in a rendered text: a string that no template changes.
std::string mark_of(std::size_t message) {
  return fmt::format("\uE000{}\uE001", message);
}

// Builds a prompt from texts and from contents whose tokens are known.
class Assembly {
 public:
  explicit Assembly(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void add(std::string_view text) {
    append(tokenizer_.encode(text, kAsRendered));
    text_ += text;
    spelled_ += text;
  }
  void add(std::string_view content, const Ids& ids) {
    append(ids);
    text_ += content;
    spelled_ += tokenizer_.decode(ids, /*skip_special=*/false);
  }
  // The prompt's tokens, if they spell `text`. A text's tokens may differ inside a longer text.
  [[nodiscard]] std::optional<Ids> finish(std::string_view text) && {
    const bool right = text_ == text && tokenizer_.decode(ids_, /*skip_special=*/false) == spelled_;
    return right ? std::optional(std::move(ids_)) : std::nullopt;
  }

 private:
  void append(const Ids& ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }

  const Tokenizer& tokenizer_;
  Ids ids_;
  std::string text_;
  std::string spelled_;  // by the ids, including special tokens
};

// Whether the message has tokens, and they spell its content. Special tokens have no text.
bool is_spelled(const Conversation& conversation, std::size_t message, const Tokenizer& tokenizer) {
  const Ids& ids = conversation.token_ids[message];
  return !ids.empty() && tokenizer.decode(ids, /*skip_special=*/true) ==
                             conversation.messages.at(message).at("content").get<std::string>();
}

// The prompt's tokens, with the given tokens of the `marked` messages; nullopt if the template
// changes a content instead of inserting it.
std::optional<Ids> assemble(const Conversation& conversation, std::span<const std::size_t> marked,
                            std::string_view rendered, std::string_view text,
                            const Tokenizer& tokenizer) {
  Assembly prompt(tokenizer);
  for (const std::size_t i : marked) {
    const std::string mark = mark_of(i);
    const std::size_t at = rendered.find(mark);
    if (at == std::string_view::npos) {
      return std::nullopt;
    }
    prompt.add(rendered.substr(0, at));
    prompt.add(conversation.messages[i]["content"].get<std::string>(), conversation.token_ids[i]);
    rendered.remove_prefix(at + mark.size());
  }
  prompt.add(rendered);
  return std::move(prompt).finish(text);
}

}  // namespace

std::vector<std::int32_t> encode_chat(const Conversation& conversation, bool add_generation_prompt,
                                      const ChatTemplate& chat, const Tokenizer& tokenizer,
                                      const nlohmann::ordered_json& variables) {
  const std::string text = chat.render(conversation.messages, add_generation_prompt, variables);
  std::vector<std::size_t> marked;
  for (std::size_t i = 0; i < conversation.token_ids.size(); ++i) {
    if (is_spelled(conversation, i, tokenizer)) {
      marked.push_back(i);
    }
  }
  if (!marked.empty()) {
    nlohmann::ordered_json messages = conversation.messages;
    for (const std::size_t i : marked) {
      messages[i]["content"] = mark_of(i);
    }
    const std::string rendered = chat.render(messages, add_generation_prompt, variables);
    if (auto ids = assemble(conversation, marked, rendered, text, tokenizer)) {
      return *ids;
    }
  }
  return tokenizer.encode(text, kAsRendered);
}

}  // namespace winnow
