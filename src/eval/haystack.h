// Running text of a given length with sentences hidden in it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

/// RULER's filler, used if there is no text.
extern const char* const kNoise;

/// Converts a prompt's text to the tokens that the model reads.
using EncodePrompt = std::function<std::vector<std::int32_t>(const std::string& text)>;

/// A sentence and its depth: 0 is the beginning of the hay, 1 its end.
struct Hidden {
  std::string sentence;
  double depth = 0.0;
};

class Haystack {
 public:
  /// White space in `text` is collapsed to single spaces. Error when nothing remains. `tokenizer`
  /// must outlive it.
  Haystack(const Tokenizer& tokenizer, std::string_view text);

  /// A prompt of at most `length` tokens, and close to it, that begins with hay from a random
  /// position (wrapping around at the end), contains `hidden` at their depths after the ends
  /// of sentences, and ends in `question`. Error when there is no room for hay.
  [[nodiscard]] std::vector<std::int32_t> prompt(int length, std::span<const Hidden> hidden,
                                                 const std::string& question,
                                                 const EncodePrompt& encode, Random& random) const;

  /// About `tokens` tokens of whole words from a random position.
  [[nodiscard]] std::string excerpt(std::size_t tokens, Random& random) const;

 private:
  [[nodiscard]] std::size_t random_place(Random& random) const;
  [[nodiscard]] std::string cut(std::size_t first, std::size_t tokens) const;

  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;
};

/// `hay` with every sentence inserted at its depth, moved to the next end of a sentence (or word).
std::string hide(const std::string& hay, std::span<const Hidden> hidden);

}  // namespace winnow::eval
