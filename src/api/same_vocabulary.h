// Whether two models have the same tokens.
#pragma once

#include <filesystem>

#include "model/config.h"

namespace winnow::engine {

/// Whether a model's directory or file has a tokenizer.
bool has_tokenizer(const std::filesystem::path& model);

/// Throws Error if a draft model's vocabulary has another size than the model's, or if more than a
/// hundredth of its tokens have other texts: hardly a draft would be right then. A few may differ,
/// such as names of reserved tokens. Texts are not compared if one of them has no tokenizer.
/// `directory` may be empty.
void require_same_vocabulary(const model::ModelSpec& spec, const std::filesystem::path& directory,
                             const model::ModelSpec& draft,
                             const std::filesystem::path& draft_directory);

}  // namespace winnow::engine
