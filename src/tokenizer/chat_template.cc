#include "tokenizer/chat_template.h"

#include <chrono>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "tokenizer/jinja/template.h"

namespace winnow {
namespace {

using nlohmann::ordered_json;

std::optional<std::string> read_file(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    return std::nullopt;
  }
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  require(file.good() || file.eof(), "{}: cannot be read", path.string());
  return text;
}

ordered_json read_config(const std::filesystem::path& path) {
  const std::optional<std::string> text = read_file(path);
  if (!text) {
    return ordered_json::object();
  }
  ordered_json config = ordered_json::parse(*text, nullptr, false);
  require(config.is_object(), "{}: expected a JSON object", path.string());
  return config;
}

/// The template of a tokenizer_config.json: one string, or several with names.
std::optional<std::string> template_of(const ordered_json& config, const std::string& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) {
    return std::nullopt;
  }
  if (found->is_string()) {
    return found->get<std::string>();
  }
  require(found->is_array(), "{}: chat_template: expected a string or an array", file);
  for (const ordered_json& entry : *found) {
    require(entry.is_object() && entry.contains("name") && entry.contains("template") &&
                entry["template"].is_string(),
            "{}: chat_template: expected entries with a name and a template", file);
    if (entry["name"] == "default") {
      return entry["template"].get<std::string>();
    }
  }
  fail("{}: chat_template: none of the templates is named 'default'", file);
}

/// bos_token, eos_token and the like; each is a string or an object with its text as content.
ordered_json special_tokens(const ordered_json& config) {
  ordered_json tokens = ordered_json::object();
  for (const auto& [name, value] : config.items()) {
    const bool with_content = value.is_object() && value.contains("content");
    const ordered_json& text = with_content ? value["content"] : value;
    if (name.ends_with("_token") && text.is_string()) {
      tokens[name] = text;
    }
  }
  return tokens;
}

std::time_t system_time() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

}  // namespace

struct ChatTemplate::Compiled {
  jinja::Template source;
  Clock clock;
  jinja::Template::Variables tokens;
};

ChatTemplate::ChatTemplate(std::string_view source, std::string name, Clock clock)
    : compiled_(std::make_unique<Compiled>(Compiled{jinja::Template(source, std::move(name)),
                                                    clock ? std::move(clock) : Clock(system_time),
                                                    {}})) {}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::optional<ChatTemplate> ChatTemplate::load(const std::filesystem::path& directory) {
  const std::filesystem::path own = directory / "chat_template.jinja";
  const std::filesystem::path config_path = directory / "tokenizer_config.json";
  const ordered_json config = read_config(config_path);
  std::optional<std::string> source = read_file(own);
  const std::string name = source ? own.string() : config_path.string() + ": chat_template";
  if (!source) {
    source = template_of(config, config_path.string());
  }
  if (!source) {
    return std::nullopt;
  }
  ChatTemplate result(*source, name);
  ordered_json tokens = special_tokens(read_config(directory / "special_tokens_map.json"));
  tokens.update(special_tokens(config));
  for (const auto& [token, text] : tokens.items()) {
    result.compiled_->tokens.emplace_back(token, jinja::from_json(text));
  }
  return result;
}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                                 const ordered_json& variables) const {
  // In transformers, tools and documents are none when there are none, not undefined.
  jinja::Template::Variables all = compiled_->tokens;
  const auto set = [&](std::string_view name, jinja::Value value) {
    std::erase_if(all, [&](const auto& variable) { return variable.first == name; });
    all.emplace_back(name, std::move(value));
  };
  set("tools", jinja::None{});
  set("documents", jinja::None{});
  for (const auto& [name, value] : variables.items()) {
    set(name, jinja::from_json(value));
  }
  set("messages", jinja::from_json(messages));
  set("add_generation_prompt", add_generation_prompt);
  return compiled_->source.render(std::move(all), compiled_->clock());
}

}  // namespace winnow
