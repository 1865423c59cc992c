// The "normalizer" of tokenizer.json: changes the text before it is split.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"

namespace winnow {

/// Replaces the matches of one pattern: "Replace" among tokenizer.json's normalizers and
/// decoders.
class Replacement {
 public:
  /// Error when `field` is not a Replace. `growth`: the factor by which the steps read so far
  /// can lengthen a text; it is increased, with an Error when it becomes absurd.
  Replacement(const JsonField& field, double& growth);
  [[nodiscard]] std::string apply(std::string_view text) const;
  /// The number of bytes at the beginning of apply(text) that come from `text`'s first `origin`.
  [[nodiscard]] std::size_t origin_after(std::string_view text, std::size_t origin) const;

 private:
  [[nodiscard]] std::vector<TextRange> find_all(std::string_view text) const;

  std::string what_;
  std::optional<Regex> regex_;  // used instead of `what_`
  std::string with_;
};

/// A text, and the number of bytes at its beginning that come from the first character of the
/// original text; 0: that character was removed.
struct TracedText {
  std::string text;
  std::size_t origin = 0;
};

/// A chain of the normalizers that tokenizer.json can have.
class Normalizer {
 public:
  /// Does not change the text.
  Normalizer() = default;
  /// Error when `field` is not a normalizer, Unsupported when its type is not supported.
  explicit Normalizer(const JsonField& field);

  [[nodiscard]] std::string apply(std::string_view text) const;
  /// The same, and tracks the first `origin` bytes.
  [[nodiscard]] TracedText trace(std::string_view text, std::size_t origin) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    std::function<std::string(std::string_view)> apply;
    /// Maps `origin`; null: the length of apply() of the first bytes alone.
    std::function<std::size_t(std::string_view text, std::size_t origin)> origin_after;
  };

  void add(const JsonField& field, int depth);
  void add_step(std::function<std::string(std::string_view)> apply);
  void add_bert(const JsonField& field);
  void add_strip(const JsonField& field);
  void add_prepend(const JsonField& field);

  std::vector<Step> steps_;
  double growth_ = 1;
};

/// `text` with every `what` (not empty) replaced, from left to right.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

}  // namespace winnow
