// The task that shows which entries a model needs: it repeats a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "model/spec.h"
#include "tokenizer/tokenizer.h"
#include "train/shards.h"

namespace winnow::train {

/// A text and its repetition, with what stands around them.
struct Repetition {
  std::vector<std::int32_t> tokens = {};
  std::size_t text = 0;    // where the text begins
  std::size_t again = 0;   // where its repetition begins
  std::size_t length = 0;  // tokens of the text
};

/// Asks a model to repeat a text, as KVzip does: by its chat template, or for a model without one
/// in plain words after the beginning-of-text token.
class Repeater {
 public:
  /// Throws Error if the chat template cannot render a text and its repetition.
  Repeater(const std::filesystem::path& model, const model::ModelSpec& spec);

  [[nodiscard]] Repetition repeat(std::span<const std::int32_t> text) const;
  /// Tokens of repeat() for a text of `length` tokens.
  [[nodiscard]] std::size_t size(std::size_t length) const {
    return before_.size() + between_.size() + 2 * length;
  }

 private:
  std::vector<std::int32_t> before_;
  std::vector<std::int32_t> between_;
};

/// At most `count` pieces of exactly `length` tokens, which `seed` draws from all of `shards`.
std::vector<std::span<const std::int32_t>> draw_pieces(const Shards& shards, std::size_t length,
                                                       std::size_t count, std::uint64_t seed);

}  // namespace winnow::train
