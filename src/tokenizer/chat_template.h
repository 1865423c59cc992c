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

/// A compiled template. Immutable, usable from many threads.
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

  /// The chat_template of a model directory (chat_template.jinja, else tokenizer_config.json; of
  /// several, the one named "default") with its bos_token and eos_token bound (what it
  /// lacks of them comes from special_tokens_map.json); nullopt when the model has none.
  static std::optional<ChatTemplate> load(const std::filesystem::path& directory);

  /// Renders `messages` ([{"role": ..., "content": ...}, ...]). `variables` are added to the
  /// template's context (tools, enable_thinking, ...). Throws Error naming template, line and
  /// cause; what a template says with raise_exception is such a cause.
  [[nodiscard]] std::string render(
      const nlohmann::ordered_json& messages, bool add_generation_prompt,
      const nlohmann::ordered_json& variables = nlohmann::ordered_json::object()) const;

 private:
  struct Compiled;
  std::unique_ptr<Compiled> compiled_;
};

}  // namespace winnow
