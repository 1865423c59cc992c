// What a model was trained for, beside going on with texts.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace winnow::server {

struct ModelTask {
  bool embeds = false;     // the state of the last token stands for the text
  bool normalises = true;  // which then has length 1
  bool ranks = false;      // it says whether a document answers a query
  std::string no = "no";   // in these words
  std::string yes = "yes";
};

/// Reads what stands beside the model: modules.json, as sentence-transformers writes it, and
/// classifier_from_token in config.json, as vLLM has it. `name` ("auto", "generate", "embed",
/// "rerank") tells instead of them. Throws Error naming a pooling that there is not here.
ModelTask find_model_task(const std::filesystem::path& directory, std::string_view name);

}  // namespace winnow::server
