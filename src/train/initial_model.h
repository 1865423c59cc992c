// Models to begin a training run with.
#pragma once

#include <cstdint>
#include <filesystem>

#include "model/checkpoint.h"

namespace winnow::train {

/// Copies what a tokenizer is made of from one model directory, or out of a GGUF file, to another;
/// not onto itself.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes a model with random weights into `directory`: the configuration and tokenizer of
/// `source`, matrices normal with deviation 0.02 (those that end a block divided by sqrt(2
/// layers)).
void write_initial_model(const std::filesystem::path& source,
                         const std::filesystem::path& directory, DType type, std::uint64_t seed);

/// Writes `source` with fewer KV heads into `directory`: each is the mean of those whose queries it
/// serves from now on (Ainslie et al. 2023, GQA). What it needs then is training.
/// Error unless `kv_heads` divides those of `source`.
void write_grouped_model(const model::Checkpoint& source, const std::filesystem::path& directory,
                         int kv_heads);

}  // namespace winnow::train
