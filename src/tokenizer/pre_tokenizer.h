// The "pre_tokenizer" of tokenizer.json: splits text into pieces; BPE merges within a piece.
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
  /// One step. `origin`: the number of bytes at the beginning of all pieces together that come from
  /// the text's first character; the step updates it for its result.
  class Step {
   public:
    virtual ~Step() = default;
    [[nodiscard]] virtual Pieces apply(const Pieces& pieces, std::size_t& origin) const = 0;
    /// Whether it replaces characters of the text.
    [[nodiscard]] virtual bool rewrites() const { return false; }
    /// Whether it treats each piece separately.
    [[nodiscard]] virtual bool is_local() const { return true; }
    /// The splitter, if it splits a text from left to right (Splitter::goes_on()); else null.
    [[nodiscard]] virtual const Splitter* left_to_right() const { return nullptr; }
  };

  /// Keeps the text in one piece.
  PreTokenizer() = default;
  /// Error when `field` is not a pre-tokenizer, Unsupported when its type is not supported.
  explicit PreTokenizer(const JsonField& field);

  /// `origin`: the number of bytes at its beginning that come from the first character of the whole
  /// text before normalization; 0: `text` begins later.
  [[nodiscard]] Pieces apply(std::string_view text, std::size_t origin) const;

  struct Cut {
    Pieces pieces;
    std::size_t end;  // of the pieces, in the text
  };
  /// Whether apply() makes pieces from left to right, so that cut_from() may be used.
  [[nodiscard]] bool goes_on() const;
  /// The pieces of `text` from `from` on, which is 0 or the end of an earlier cut. `open`: the text
  /// may continue; then returns only pieces that cannot change.
  [[nodiscard]] Cut cut_from(std::string_view text, std::size_t from, bool open) const;

 private:
  [[nodiscard]] Pieces apply_from(std::size_t step, Pieces pieces, std::size_t origin) const;
  void add(const JsonField& field, int depth);
  void add_split(Splitter splitter);
  void add_rewriting(std::shared_ptr<const Step> step, const JsonField& field);

  std::vector<std::shared_ptr<const Step>> steps_;
};

}  // namespace winnow
