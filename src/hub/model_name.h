// Models by the names that they have on the Hugging Face Hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::hub {

/// A repository, org/name, and a branch, a tag or a commit of it.
struct ModelName {
  std::string repository;
  std::string revision = "main";

  bool operator==(const ModelName&) const = default;
};

/// "org/name" or "org/name@revision"; nullopt for what the Hub has no such name for, above all
/// paths.
std::optional<ModelName> parse_model_name(std::string_view text);

/// The repository whose snapshot in a cache `directory` is
/// (.../models--org--name/snapshots/COMMIT); nullopt for other directories.
std::optional<std::string> repository_of_snapshot(const std::filesystem::path& directory);

}  // namespace winnow::hub
