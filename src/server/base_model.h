// The name of the served model, and whether an adapter was made for it.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace winnow::server {

/// The name of the model at `path`: its repository, if it is in the Hub's cache; else its folder's
/// or file's.
std::string name_of_model(const std::filesystem::path& path);

/// Whether `base`, a name or a path as PEFT records it, may be the model at `path`, which is also
/// known by `other_names`. Spelling, the organisation and the format of the weights do not count:
/// unsloth/Qwen3-8B-bnb-4bit may be Qwen3-8B-Q4_K_M.gguf. An empty base may be any model.
bool may_be_model(const std::string& base, const std::filesystem::path& path,
                  std::span<const std::string> other_names);

}  // namespace winnow::server
