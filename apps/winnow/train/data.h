// Tokenised data for a training run, made if it does not exist yet.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/shards.h"
#include "train/tokenize.h"

namespace winnow::cli {

/// Tokenises with a progress bar, and reports skipped lines. Throws Interrupted after a Ctrl-C.
train::TokenizeResult tokenize_with_progress(train::TokenizeOptions options,
                                             const model::ModelSpec& config,
                                             const std::filesystem::path& directory);

/// What the shards of options.files are, or will be, made from.
nlohmann::ordered_json origin_of(const train::TokenizeOptions& options);

/// The shards of options.files: a folder made by tokenize-data is used directly, if it was made
/// with this tokenizer; files are tokenised into `cache`, unless that was done before.
train::Shards open_data(const train::TokenizeOptions& options, const model::ModelSpec& config,
                        const std::filesystem::path& cache);

}  // namespace winnow::cli
