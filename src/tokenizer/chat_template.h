// Chat templates: the Jinja of tokenizer_config.json that turns messages into a prompt.
#pragma once

#include <array>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// One compiled template, or several from which a chat selects one. Immutable, usable from many
/// threads.
class ChatTemplate {
 public:
  /// The variables by which templates switch a model's thinking; each template has its own.
  static constexpr std::array<std::string_view, 2> kThinkingSwitches{"enable_thinking", "thinking"};

  /// The time that strftime_now returns, with which some templates tell the model the date.
  using Clock = std::function<std::time_t()>;

  /// Compiles `source`; Error with line number for syntax that is wrong or not supported. `name` is
  /// the template's name in messages.
  explicit ChatTemplate(std::string_view source, std::string name = "chat_template",
                        Clock clock = {});
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  /// The templates of a model directory: chat_template.jinja and those in
  /// additional_chat_templates/, else the chat_template of tokenizer_config.json, which is one
  /// template or several named ones, else that of chat_template.json; nullopt if there is none. Its
  /// bos_token, eos_token and the like are bound (token_files.h). Errors in a template are
  /// thrown when it is rendered: the model can be used without chats.
  static std::optional<ChatTemplate> load(const std::filesystem::path& directory);

  /// Whether the template that render() selects for these variables uses `variable`. Throws
  /// Error if there is no such template, like render().
  [[nodiscard]] bool names(std::string_view variable, const nlohmann::ordered_json& variables =
                                                          nlohmann::ordered_json::object()) const;

  /// Renders `messages` ([{"role": ..., "content": ...}, ...]). `variables` are added to the
  /// template's context (tools, enable_thinking, ...). Of several templates, the one named
  /// "tool_use" is used if there are tools, else "rag" if there are documents, else
  /// "default". Throws Error naming template, line and cause, which may be the message
  /// of raise_exception.
  [[nodiscard]] std::string render(
      const nlohmann::ordered_json& messages, bool add_generation_prompt,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;

 private:
  struct Compiled;
  ChatTemplate();
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace winnow
