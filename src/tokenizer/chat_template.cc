#include "tokenizer/chat_template.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <iterator>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json.h"
#include "checkpoint/model_path.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/jinja/template.h"
#include "tokenizer/json_field.h"
#include "tokenizer/token_files.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using nlohmann::ordered_json;

namespace fs = std::filesystem;

constexpr const char* kDefault = "default";
constexpr const char* kToolUse = "tool_use";
constexpr const char* kRag = "rag";

/// A template's source, its name if there are several, and its location.
struct Source {
  std::string name;
  std::string text;
  std::string where;
};

/// Templates that are separate files of a directory.
std::vector<Source> template_files(const fs::path& directory) {
  std::vector<Source> sources;
  const auto add = [&](const std::string& name, const fs::path& path) {
    sources.push_back({name, read_text_file(path), path.string()});
  };
  if (const fs::path path = directory / "chat_template.jinja"; fs::exists(path)) {
    add(kDefault, path);
  }
  if (const fs::path more = directory / "additional_chat_templates"; fs::is_directory(more)) {
    for (const auto& entry : fs::directory_iterator(more)) {
      if (entry.path().extension() == ".jinja") {
        add(entry.path().stem().string(), entry.path());
      }
    }
  }
  return sources;
}

/// The templates of a tokenizer_config.json: one string, or several named templates.
std::vector<Source> templates_of(const JsonField& field) {
  if (field.is_null()) {
    return {};
  }
  if (field.is_string()) {
    return {{kDefault, field.as_string(), field.where()}};
  }
  std::vector<Source> sources;
  if (field.is_object()) {
    for (const auto& item : field.json().items()) {
      const JsonField entry = field[item.key()];
      sources.push_back({item.key(), entry.as_string(), entry.where()});
    }
    return sources;
  }
  if (!field.is_array()) {
    field.expected("a template, or several with names");
  }
  for (const JsonField& entry : field.elements()) {
    sources.push_back(
        {entry["name"].as_string(), entry["template"].as_string(), entry["template"].where()});
  }
  return sources;
}

std::vector<Source> find_templates(const fs::path& directory) {
  if (std::vector<Source> sources = template_files(directory); !sources.empty()) {
    return sources;
  }
  // chat_template.json belongs to older models that also take images.
  for (const char* name : {"tokenizer_config.json", "chat_template.json"}) {
    const fs::path path = directory / name;
    if (!fs::exists(path)) {
      continue;
    }
    const nlohmann::json document = read_json_text(read_text_file(path), path.string());
    const JsonField file(document, path.string());
    if (std::vector<Source> sources = templates_of(file["chat_template"]); !sources.empty()) {
      return sources;
    }
  }
  return {};
}

std::time_t system_time() {
  return std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
}

}  // namespace

struct ChatTemplate::Compiled {
  struct Entry {
    std::string text;
    std::variant<jinja::Template, std::string> compiled;  // an Error's text if it is broken
  };
  std::map<std::string, Entry> templates;  // by name
  Clock clock = system_time;
  jinja::Template::Variables tokens;

  [[nodiscard]] const Entry& choose(const ordered_json& variables) const {
    const auto is_given = [&](const char* name) {
      const auto found = variables.find(name);
      return found != variables.end() && !found->is_null();
    };
    auto found = is_given("tools") ? templates.find(kToolUse) : templates.end();
    if (found == templates.end() && is_given("documents") && !variables["documents"].empty()) {
      found = templates.find(kRag);
    }
    found = found != templates.end() ? found : templates.find(kDefault);
    if (found == templates.end()) {
      std::vector<std::string> names;
      std::ranges::transform(templates, std::back_inserter(names),
                             [](const auto& entry) { return in_quotes(entry.first); });
      fail("none of the chat templates is named \"default\", only {}", fmt::join(names, ", "));
    }
    if (const auto* error = std::get_if<std::string>(&found->second.compiled)) {
      fail("{}", *error);
    }
    return found->second;
  }
};

ChatTemplate::ChatTemplate() : compiled_(std::make_unique<Compiled>()) {}

ChatTemplate::ChatTemplate(std::string_view source, std::string name, Clock clock)
    : ChatTemplate() {
  compiled_->templates.emplace(
      kDefault, Compiled::Entry{std::string(source), jinja::Template(source, std::move(name))});
  if (clock) {
    compiled_->clock = std::move(clock);
  }
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

std::optional<ChatTemplate> ChatTemplate::load(const fs::path& directory) {
  std::vector<Source> sources;
  std::vector<std::pair<std::string, std::string>> tokens;
  if (is_gguf_model(directory)) {
    const gguf::File file(directory);
    for (auto& [name, text] : gguf_templates(file)) {
      sources.push_back({name, std::move(text), directory.string() + ": chat_template"});
    }
    tokens = gguf_named_tokens(file);
  } else {
    sources = find_templates(directory);
    const TokenFiles files(directory);
    for (const auto& [name, token] : files.named()) {
      tokens.emplace_back(name, token.content);
    }
  }
  if (sources.empty()) {
    return std::nullopt;
  }
  ChatTemplate result;
  auto& templates = result.compiled_->templates;
  for (const Source& source : sources) {
    try {
      templates.insert_or_assign(
          source.name, Compiled::Entry{source.text, jinja::Template(source.text, source.where)});
    } catch (const Error& error) {
      templates.insert_or_assign(source.name, Compiled::Entry{source.text, error.what()});
    }
  }
  for (const auto& [name, text] : tokens) {
    result.compiled_->tokens.emplace_back(name, jinja::Value(to_valid_utf8(text)));
  }
  return result;
}

bool ChatTemplate::names(std::string_view variable, const ordered_json& variables) const {
  const std::string_view text = compiled_->choose(variables).text;
  const auto is_part_of_word = [&](std::size_t at) {
    const auto c = static_cast<unsigned char>(at < text.size() ? text[at] : ' ');
    return std::isalnum(c) != 0 || c == '_';
  };
  for (auto at = text.find(variable); at != std::string_view::npos;
       at = text.find(variable, at + 1)) {
    if (!(at > 0 && is_part_of_word(at - 1)) && !is_part_of_word(at + variable.size())) {
      return true;
    }
  }
  return false;
}

std::string ChatTemplate::render(const ordered_json& messages, bool add_generation_prompt,
                                 const ordered_json& variables) const {
  // In transformers, absent tools and documents are None, not undefined.
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
  const auto& chosen = std::get<jinja::Template>(compiled_->choose(variables).compiled);
  return chosen.render(std::move(all), compiled_->clock());
}

}  // namespace winnow
