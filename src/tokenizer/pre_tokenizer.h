// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces within which BPE merges.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"

namespace winnow {

/// Split, ByteLevel, Digits, Metaspace, and sequences of them.
class PreTokenizer {
 public:
  /// One of them. `first`: the pieces come from the very beginning of the text.
  class Step {
   public:
    virtual ~Step() = default;
    [[nodiscard]] virtual Pieces apply(const Pieces& pieces, bool first) const = 0;
    /// Whether it writes the text in other characters.
    [[nodiscard]] virtual bool rewrites() const { return false; }
  };

  /// Keeps the text in one piece.
  PreTokenizer() = default;
  /// Error when `field` is not a pre-tokenizer, Unsupported when it is another one.
  explicit PreTokenizer(const JsonField& field);

  [[nodiscard]] Pieces apply(std::string_view text, bool first) const;

 private:
  void add(const JsonField& field, int depth);
  void add_rewriting(std::shared_ptr<const Step> step, const JsonField& field);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace winnow
