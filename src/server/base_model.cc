#include "server/base_model.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

#include "hub/model_name.h"

namespace winnow::server {
namespace {

namespace fs = std::filesystem;

// The repository on the Hub whose snapshot `path` is, or lies in.
std::optional<std::string> repository_of(const fs::path& path) {
  for (fs::path folder = path; folder.has_relative_path(); folder = folder.parent_path()) {
    if (auto repository = hub::repository_of_snapshot(folder)) {
      return repository;
    }
  }
  return std::nullopt;
}

// Lower-case words of letters and digits.
std::vector<std::string> words_of(std::string_view name) {
  std::vector<std::string> words(1);
  for (const char c : name) {
    const auto letter = static_cast<unsigned char>(c);
    if (std::isalnum(letter) != 0) {
      words.back() += static_cast<char>(std::tolower(letter));
    } else if (!words.back().empty()) {
      words.emplace_back();
    }
  }
  if (words.back().empty()) {
    words.pop_back();
  }
  return words;
}

// Whether a word of a model's name begins a description of its files: Q4_K_M, bnb-4bit, DMS-8x.
bool describes_files(const std::string& word) {
  constexpr std::array<std::string_view, 20> kWords{
      "awq",  "bf16", "bnb",  "dmc",  "dms",  "f16",  "f32", "fp16", "fp32",    "fp8",
      "gguf", "gptq", "4bit", "8bit", "int4", "int8", "hf",  "nf4",  "unsloth", "quantized"};
  const auto is_ggml_type = [](std::string_view text) {
    text.remove_prefix(text.starts_with('i') ? 1 : 0);
    return text.size() > 1 && text[0] == 'q' && text[1] >= '1' && text[1] <= '8';
  };
  return std::ranges::find(kWords, word) != kWords.end() || is_ggml_type(word);
}

// What is left of a name without its organisation and the format of its weights.
std::string essence(std::string_view name) {
  name.remove_suffix(name.ends_with(".gguf") ? std::string_view(".gguf").size() : 0);
  std::vector<std::string> words = words_of(name);
  if (!words.empty() && words.front() == "meta") {  // Meta-Llama-3-8B became Llama-3-8B
    words.erase(words.begin());
  }
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty() && describes_files(word)) {
      break;
    }
    text += word;
  }
  return text;
}

// "org/name" is name, and org-name as folders are called; a path is its last part.
std::vector<std::string> essences(const std::string& name) {
  std::string path = name;
  std::ranges::replace(path, '\\', '/');  // recorded on Windows
  while (path.ends_with('/')) {
    path.pop_back();
  }
  if (const auto repository = repository_of(path)) {
    path = *repository;
  }
  std::vector<std::string> result{essence(path.substr(path.rfind('/') + 1))};
  if (hub::parse_model_name(path)) {
    result.push_back(essence(path));
  }
  return result;
}

}  // namespace

// Files in the Hub's cache are links, so a file is named by its folders, up to the snapshot.
std::string name_of_model(const fs::path& model) {
  const bool is_file = fs::is_regular_file(model);
  const fs::path path = fs::weakly_canonical(is_file ? model.parent_path() : model);
  if (const auto repository = repository_of(path)) {
    return *repository;
  }
  return (is_file ? model : path).filename().string();
}

bool may_be_model(const std::string& base, const fs::path& path,
                  std::span<const std::string> other_names) {
  std::error_code ignored;
  if (base.empty() || fs::equivalent(base, path, ignored)) {
    return true;
  }
  std::vector<std::string> names(other_names.begin(), other_names.end());
  names.push_back(name_of_model(path));
  names.push_back(fs::absolute(path, ignored).lexically_normal().string());
  if (fs::is_regular_file(path, ignored)) {
    names.push_back(fs::absolute(path, ignored).parent_path().string());
  }
  const std::vector<std::string> wanted = essences(base);
  return std::ranges::any_of(names, [&wanted](const std::string& name) {
    return std::ranges::any_of(essences(name), [&wanted](const std::string& known) {
      return !known.empty() && std::ranges::find(wanted, known) != wanted.end();
    });
  });
}

}  // namespace winnow::server
