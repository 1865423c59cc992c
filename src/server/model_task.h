// The tasks that a model was trained for, besides text generation.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace winnow::server {

struct ModelTask {
  bool embeds = false;     // the state of the last token is the text's embedding
  bool normalises = true;  // embeddings have length 1
  bool ranks = false;      // the model says whether a document answers a query
  std::string no = "no";   // the answer's word for no
  std::string yes = "yes";
};

/// Reads files in the model's directory: modules.json, as sentence-transformers writes it, and
/// classifier_from_token in config.json, as in vLLM. `name` ("auto", "generate", "embed",
/// "rerank") overrides them unless it is "auto". Throws Error naming an unsupported pooling.
ModelTask find_model_task(const std::filesystem::path& directory, std::string_view name);

}  // namespace winnow::server
