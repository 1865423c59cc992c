// SentencePiece's table of replacements as tokenizer.json has it: the normalizer "Precompiled".
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
  /// How many times longer a text can become.
  [[nodiscard]] double growth() const { return growth_; }

 private:
  [[nodiscard]] std::uint32_t unit(std::size_t i) const;
  // What the shortest beginning of `text` that is in the table becomes.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view text) const;

  std::shared_ptr<const std::string> bytes_;
  std::string_view trie_;
  std::string_view strings_;
  double growth_ = 1;
};

}  // namespace winnow
