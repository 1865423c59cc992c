// SentencePiece's replacement table as stored in tokenizer.json: the normalizer "Precompiled".
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tokenizer/json_field.h"

namespace winnow {

/// Copies share the table.
class Charsmap {
 public:
  /// Reads base64; Error when it is damaged.
  explicit Charsmap(const JsonField& field);

  /// If a grapheme of less than 6 bytes starts with a match, the match replaces all of it;
  /// otherwise every character is looked up separately. This follows Hugging Face's tokenizers, not
  /// SentencePiece.
  [[nodiscard]] std::string apply(std::string_view text) const;
  /// The largest factor by which a text can grow.
  [[nodiscard]] double growth() const { return growth_; }

 private:
  [[nodiscard]] std::uint32_t unit(std::size_t i) const;
  // The replacement of the shortest prefix of `text` that is in the table.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;

  std::shared_ptr<const std::string> bytes_;
  std::string_view trie_;
  std::string_view strings_;
  double growth_ = 1;
};

}  // namespace winnow
