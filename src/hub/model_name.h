// Models by the names that they have on the Hugging Face Hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::hub {

/// A repository, org/name, a branch, a tag or a commit of it, and which of its GGUF files.
struct ModelName {
  std::string repository;
  std::string revision = "main";
  std::string gguf;  // a file or a type (gguf_choice.h); empty: not said

  bool operator==(const ModelName&) const = default;
};

/// "org/name", "org/name@revision", "org/name:Q4_K_M" or "org/name@revision:file.gguf"; nullopt for
/// what the Hub has no such name for, above all paths.
std::optional<ModelName> parse_model_name(std::string_view text);

/// The repository whose snapshot in a cache `directory` is
/// (.../models--org--name/snapshots/COMMIT); nullopt for other directories.
std::optional<std::string> repository_of_snapshot(const std::filesystem::path& directory);

}  // namespace winnow::hub
