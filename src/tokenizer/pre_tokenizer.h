// The "pre_tokenizer" of tokenizer.json: cuts text into the pieces within which BPE merges.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/pieces.h"
#include "tokenizer/split.h"

namespace winnow {

/// A chain of the pre-tokenizers that tokenizer.json can have.
class PreTokenizer {
 public:
  /// One of them. `origin`: how many bytes at the beginning of the pieces, together, stand for the
  /// first character of the text; it becomes that of the result.
  class Step {
   public:
    virtual ~Step() = default;
    [[nodiscard]] virtual Pieces apply(const Pieces& pieces, std::size_t& origin) const = 0;
    /// Whether it writes the text in other characters.
    [[nodiscard]] virtual bool rewrites() const { return false; }
    /// Whether it treats each piece by itself.
    [[nodiscard]] virtual bool is_local() const { return true; }
    /// What it cuts a text with from left to right (Splitter::goes_on()), if it does that.
    [[nodiscard]] virtual const Splitter* left_to_right() const { return nullptr; }
  };

  /// Keeps the text in one piece.
  PreTokenizer() = default;
  /// Error when `field` is not a pre-tokenizer, Unsupported when it is another one.
  explicit PreTokenizer(const JsonField& field);

  /// `origin`: how many bytes at its beginning stand for the first character of the whole text, as
  /// it was before normalization; 0: it begins later.
  [[nodiscard]] Pieces apply(std::string_view text, std::size_t origin) const;

  struct Cut {
    Pieces pieces;
    std::size_t end;  // of them, in the text
  };
  /// Whether apply() makes pieces from left to right, so that cut_from() can be asked for.
  [[nodiscard]] bool goes_on() const;
  /// The pieces of `text` from `from` on, which is 0 or the end of an earlier cut. `open`: the text
  /// may go on; then only those that stay what they are.
  [[nodiscard]] Cut cut_from(std::string_view text, std::size_t from, bool open) const;

 private:
  [[nodiscard]] Pieces apply_from(std::size_t step, Pieces pieces, std::size_t origin) const;
  void add(const JsonField& field, int depth);
  void add_split(Splitter splitter);
  void add_rewriting(std::shared_ptr<const Step> step, const JsonField& field);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace winnow
