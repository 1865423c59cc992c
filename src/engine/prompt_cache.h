// The file of GenerateOptions::prompt_cache.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "engine/state_file.h"

namespace winnow::engine {

/// Reads and writes the cache of one prompt. An unusable file costs time and causes a warning, not
/// an error. Never overwrites a file that is not a state.
class PromptCache {
 public:
  /// `read_only`: the file is never written.
  PromptCache(std::filesystem::path path, StateKind kind, bool read_only);

  /// Sets request.beginning to the longest part of the prompt in the file, if any. If that is not
  /// the whole prompt, requests the prompt's cache from the engine.
  void load(Request& request);
  /// Writes the cache that the engine has delivered since.
  void save();

  /// A description of what went wrong, or "".
  [[nodiscard]] const std::string& warning() const { return warning_; }

 private:
  std::filesystem::path path_;
  StateKind kind_;
  bool read_only_;
  std::vector<std::int32_t> prompt_;
  std::shared_ptr<std::optional<kvcache::SavedSequence>> told_;  // set by the engine
  std::string warning_;

  void read(Request& request);
};

}  // namespace winnow::engine
