#include "server/model_task.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/json.h"

namespace winnow::server {
namespace {

using nlohmann::json;

json read_json(const std::filesystem::path& path) {
  return std::filesystem::exists(path) ? parse_json(read_text_file(path), path.string()) : json();
}

bool is_of_type(const json& module, std::string_view type) {
  return module.is_object() && module.contains("type") && module["type"].is_string() &&
         module["type"].get<std::string>().ends_with(type);
}

// The engine only provides the state of the last token, as models are causal.
void require_last_token(const std::filesystem::path& path) {
  const json config = read_json(path);
  const bool last = config.is_object() && (config.value("pooling_mode_lasttoken", json()) == true ||
                                           config.value("pooling_mode", json()) == "lasttoken");
  require(last, "{}: winnow pools the last token alone (--task generate serves texts)",
          path.string());
}

void read_modules(const std::filesystem::path& directory, ModelTask& task) {
  const json modules = read_json(directory / "modules.json");
  if (!modules.is_array()) {
    return;
  }
  task.normalises = false;
  for (const json& module : modules) {
    if (is_of_type(module, "Pooling")) {
      task.embeds = true;
      require_last_token(directory / module.value("path", "1_Pooling") / "config.json");
    }
    task.normalises = task.normalises || is_of_type(module, "Normalize");
  }
}

void read_classifier(const std::filesystem::path& directory, ModelTask& task) {
  const json config = read_json(directory / "config.json");
  const json words = config.is_object() ? config.value("classifier_from_token", json()) : json();
  if (words.is_array() && words.size() == 2 && words[0].is_string() && words[1].is_string()) {
    task.ranks = true;
    task.no = words[0];
    task.yes = words[1];
  }
}

}  // namespace

ModelTask find_model_task(const std::filesystem::path& directory, std::string_view name) {
  ModelTask task;
  require(name == "auto" || name == "generate" || name == "embed" || name == "rerank",
          "--task {}: expected auto, generate, embed or rerank", name);
  if (name != "generate") {
    read_modules(directory, task);
    read_classifier(directory, task);
  }
  task.embeds = task.embeds || name == "embed";
  task.ranks = task.ranks || name == "rerank";
  return task;
}

}  // namespace winnow::server
