// The file of GenerateOptions::prompt_cache.
#pragma once

#include <cstdint>
#include <filesystem>
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
  /// `read_only`: save() will not be called.
  PromptCache(std::filesystem::path path, StateKind kind, bool read_only);

  /// Sets request.beginning to the part of the prompt that the file holds, if any.
  void load(Request& request);
  /// Writes what the engine has saved of that prompt; nullopt: the file holds it already.
  void save(std::optional<kvcache::SavedSequence> cache);

  /// What went wrong, if anything.
  [[nodiscard]] const std::string& warning() const { return warning_; }

 private:
  std::filesystem::path path_;
  StateKind kind_;
  bool read_only_;
  std::vector<std::int32_t> prompt_;
  std::string warning_;
};

}  // namespace winnow::engine
