// Initial models for a training run.
#pragma once

#include <cstdint>
#include <filesystem>

#include "model/checkpoint.h"

namespace winnow::train {

/// Copies a tokenizer's files from a model directory, or out of a GGUF file, to another directory;
/// does nothing if both are the same.
void copy_tokenizer(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes a model with random weights into `directory`: the configuration and tokenizer of
/// `source`, matrices normal with deviation 0.02 (those that end a block divided by sqrt(2
/// layers)).
void write_initial_model(const std::filesystem::path& source,
                         const std::filesystem::path& directory, DType type, std::uint64_t seed);

/// Writes `source` with fewer KV heads into `directory`: each is the mean of the KV heads that it
/// replaces (Ainslie et al. 2023, GQA). The model then needs training.
/// Error unless `kv_heads` divides those of `source`.
void write_grouped_model(const model::Checkpoint& source, const std::filesystem::path& directory,
                         int kv_heads);

}  // namespace winnow::train
