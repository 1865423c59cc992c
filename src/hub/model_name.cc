#include "hub/model_name.h"

#include <algorithm>

namespace winnow::hub {
namespace {

constexpr std::size_t kLongestPart = 96;
constexpr std::string_view kFolderPrefix = "models--";
constexpr std::string_view kPartSeparator = "--";

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool consists_of(std::string_view text, std::string_view others) {
  return std::ranges::all_of(
      text, [&](char c) { return is_alphanumeric(c) || others.find(c) != std::string_view::npos; });
}

/// Whether `text` is a name of an organisation or repository. Cache folders join them with "--".
bool is_part(std::string_view text) {
  const auto is_edge = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return !text.empty() && text.size() <= kLongestPart && consists_of(text, "._-") &&
         is_edge(text.front()) && is_edge(text.back()) &&
         text.find(kPartSeparator) == std::string_view::npos &&
         text.find("..") == std::string_view::npos;
}

/// Whether `text` is a revision; it becomes a path below refs/.
bool is_revision(std::string_view text) {
  return !text.empty() && consists_of(text, "._-/+") && text.front() != '/' && text.back() != '/' &&
         text.front() != '.' && text.find("//") == std::string_view::npos &&
         text.find("..") == std::string_view::npos && text.find("/.") == std::string_view::npos;
}

/// Without the Hub's address before it.
std::string_view without_address(std::string_view text) {
  for (const std::string_view start : {"https://", "hf.co/", "huggingface.co/"}) {
    text.remove_prefix(text.starts_with(start) ? start.size() : 0);
  }
  return text;
}

bool is_weight_file(std::string_view text) {
  return text.ends_with(".gguf") || text.ends_with(".safetensors");
}

/// Whether `text` is a file, with its folders, or a type.
bool is_gguf_choice(std::string_view text) {
  return is_revision(text) && text.find('+') == std::string_view::npos;
}

}  // namespace

std::optional<ModelName> parse_model_name(std::string_view text) {
  ModelName name;
  text = without_address(text);
  if (const std::size_t at = text.find(':'); at != std::string_view::npos) {
    name.gguf = text.substr(at + 1);
    text = text.substr(0, at);
    if (!is_gguf_choice(name.gguf)) {
      return std::nullopt;
    }
  }
  if (const std::size_t at = text.find('@'); at != std::string_view::npos) {
    name.revision = text.substr(at + 1);
    text = text.substr(0, at);
  }
  const std::size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_part(text.substr(0, slash)) ||
      !is_part(text.substr(slash + 1)) || is_weight_file(text) || !is_revision(name.revision)) {
    return std::nullopt;
  }
  name.repository = text;
  return name;
}

std::optional<std::string> repository_of_snapshot(const std::filesystem::path& directory) {
  const std::filesystem::path snapshots = directory.parent_path();
  const std::string folder = snapshots.parent_path().filename().string();
  const std::size_t separator = folder.find(kPartSeparator, kFolderPrefix.size());
  if (snapshots.filename() != "snapshots" || !folder.starts_with(kFolderPrefix) ||
      separator == std::string::npos) {
    return std::nullopt;
  }
  return folder.substr(kFolderPrefix.size(), separator - kFolderPrefix.size()) + "/" +
         folder.substr(separator + kPartSeparator.size());
}

}  // namespace winnow::hub
