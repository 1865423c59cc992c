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

/// Reads and writes the cache of one prompt. An unusable file costs time and causes a warning, but
/// no error. Never overwrites a file that is not a state.
class PromptCache {
 public:
  /// `read_only`: the file is not written.
  PromptCache(std::filesystem::path path, StateKind kind, bool read_only);

  /// Sets request.beginning to the part of the prompt that the file holds, if any, and asks for
  /// the cache of the prompt if it holds less.
  void load(Request& request);
  /// Writes the cache that the engine has told of since.
  void save();

  /// What went wrong, if anything.
  [[nodiscard]] const std::string& warning() const { return warning_; }

 private:
  std::filesystem::path path_;
  StateKind kind_;
  bool read_only_;
  std::vector<std::int32_t> prompt_;
  std::shared_ptr<std::optional<kvcache::SavedSequence>> told_;  // by the engine
  std::string warning_;

  void read(Request& request);
};

}  // namespace winnow::engine
