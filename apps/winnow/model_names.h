// Flags that take a model: a directory, a GGUF file, or a name on the Hugging Face Hub.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "apps/winnow/progress.h"
#include "hub/model_headers.h"

namespace winnow::cli {

/// The flag of a command's model, which may also stand alone: winnow chat MODEL.
inline constexpr const char* kModelFlag = "model,--model";

/// The type of their values in --help. find_named_models() recognises such flags by it.
inline constexpr const char* kModelType = "MODEL";
/// The same for flags with other choices.
inline constexpr const char* kDenseOrModelType = "dense|MODEL";
inline constexpr const char* kReferenceType = "dense|MODEL|FILE";

/// A model that is described, not run: find_described_model() finds it.
inline constexpr const char* kDescribedType = "MODEL|FILE";

/// A probe for a model.
inline constexpr const char* kProbeType = "PROBE";

/// The progress of a download, as a bar; the first Ctrl-C ends it.
class DownloadProgress {
 public:
  explicit DownloadProgress(std::string name) : name_(std::move(name)) {}
  void operator()(std::int64_t done, std::int64_t total);
  /// Removes the bar.
  void clear() { bar_.reset(); }

 private:
  std::string name_;
  std::optional<ProgressBar> bar_;
};

/// Replaces the names in such flags of the called command by directories, and
/// downloads models that are not in the cache.
void find_named_models(const CLI::App& app);

/// What to open of a model that is described, not run.
struct DescribedModel {
  std::string path;
  std::unique_ptr<hub::ModelHeaders> headers;  // the owner of `path`; null: the whole model is here
};

/// The same for one name; of a model that is not in the cache only the headers are read.
DescribedModel find_described_model(const std::string& given);

}  // namespace winnow::cli
