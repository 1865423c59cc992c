// Models by their names on the Hugging Face Hub.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace winnow::hub {

/// A repository (org/name), a branch, tag or commit of it, and a choice among its GGUF files.
struct ModelName {
  std::string repository;
  std::string revision = "main";
  std::string gguf;  // a file or a type (gguf_choice.h); empty: not given

  bool operator==(const ModelName&) const = default;
};

/// "org/name", "org/name@revision", "org/name:Q4_K_M" or "org/name@revision:file.gguf", also behind
/// the Hub's address, such as hf.co/; nullopt if this cannot be a name on the Hub, as for paths.
std::optional<ModelName> parse_model_name(std::string_view text);

/// The repository of a snapshot in a cache, whose directory is
/// .../models--org--name/snapshots/COMMIT; nullopt for other directories.
std::optional<std::string> repository_of_snapshot(const std::filesystem::path& directory);

}  // namespace winnow::hub
