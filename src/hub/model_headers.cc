#include "hub/model_headers.h"

#include <cstdlib>

#include "base/error.h"
#include "checkpoint/weight_header.h"

namespace winnow::hub {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (fs::temp_directory_path() / "winnow-headers-XXXXXX").string();
  require_system(::mkdtemp(pattern.data()) != nullptr, "{}: cannot create", pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

ModelHeaders::ModelHeaders(const std::string& model, const OnProgress& on_progress) : name_(model) {
  try {
    bring_model(model, [&](const ModelName& name, const Environment& environment) {
      pulled_ = pull_headers(name, environment, folder_.path(), on_progress);
    });
  } catch (const ValuesNeeded& error) {
    fail("{}: {}; download them: winnow pull {}", model, error.what(), model);
  }
}

std::string ModelHeaders::with_name(std::string message) const {
  const fs::path& model = pulled_.model;
  for (const std::string& path : {model.string(), model.parent_path().string()}) {
    for (std::size_t at = message.find(path); at != std::string::npos; at = message.find(path)) {
      message.replace(at, path.size(), name_);
    }
  }
  return message;
}

}  // namespace winnow::hub
