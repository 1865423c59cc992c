// Flags that take a model: a directory, a GGUF file, or a name on the Hugging Face Hub.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "apps/winnow/progress.h"

namespace winnow::cli {

/// The type of their values in --help. It is also what find_named_models() knows them by.
inline constexpr const char* kModelType = "MODEL";
/// The same where there are other choices.
inline constexpr const char* kDenseOrModelType = "dense|MODEL";
inline constexpr const char* kReferenceType = "dense|MODEL|FILE";

/// A probe beside a model.
inline constexpr const char* kProbeType = "PROBE";

/// How far a download has come, as a bar; a first Ctrl-C ends it.
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

/// Replaces the names that such flags of the command that was called have got by directories, and
/// downloads what is not in the cache.
void find_named_models(const CLI::App& app);

}  // namespace winnow::cli
