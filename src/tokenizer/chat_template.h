// Chat templates: the Jinja of tokenizer_config.json that turns messages into a prompt.
#pragma once

#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// A compiled template, or several of which a chat takes one. Immutable, usable from many threads.
class ChatTemplate {
 public:
  /// What strftime_now, by which some templates tell the model the date, reads.
  using Clock = std::function<std::time_t()>;

  /// Compiles `source`; Error with line number for what is wrong or not supported. `name` stands
  /// for the template in messages.
  explicit ChatTemplate(std::string_view source, std::string name = "chat_template",
                        Clock clock = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The templates of a model directory: chat_template.jinja and those in
  /// additional_chat_templates/, else the chat_template of tokenizer_config.json, which is one or
  /// several with names, else that of chat_template.json; nullopt when the model has none. Its
  /// bos_token, eos_token and the like are bound (token_files.h). What is wrong with a template is
  /// said when it is rendered: it costs the chat, not the model.
  static std::optional<ChatTemplate> load(const std::filesystem::path& directory);

  /// Whether the template that render() takes with these variables names the one given. Throws
  /// Error where there is no such template, as render() does.
  [[nodiscard]] bool names(std::string_view variable, const nlohmann::ordered_json& variables =
                                                          nlohmann::ordered_json::object()) const;

  /// Renders `messages` ([{"role": ..., "content": ...}, ...]). `variables` are added to the
  /// template's context (tools, enable_thinking, ...). Of several templates the one named
  /// "tool_use" is taken where there are tools, else "rag" where there are documents, else
  /// "default". Throws Error naming template, line and cause; what a template says with
  /// raise_exception is such a cause.
  [[nodiscard]] std::string render(
      const nlohmann::ordered_json& messages, bool add_generation_prompt,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;

 private:
  struct Compiled;
  ChatTemplate();
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace winnow
