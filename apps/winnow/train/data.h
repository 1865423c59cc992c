// Tokenised data for a training run: made when it is not there yet.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/shards.h"
#include "train/tokenize.h"

namespace winnow::cli {

/// Tokenises with a progress bar, and says what was skipped. Throws Interrupted after a Ctrl-C.
train::TokenizeResult tokenize_with_progress(train::TokenizeOptions options,
                                             const model::ModelSpec& config,
                                             const std::filesystem::path& directory);

/// The shards of options.files: one folder of tokenize-data is taken as it is, if it was made with
/// this tokenizer; files are tokenised into `cache`, unless that was done before.
train::Shards open_data(const train::TokenizeOptions& options, const model::ModelSpec& config,
                        const std::filesystem::path& cache);

}  // namespace winnow::cli
