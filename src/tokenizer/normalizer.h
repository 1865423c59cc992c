// The "normalizer" of tokenizer.json: what happens to text before it is cut.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/regex.h"

namespace winnow {

/// What the matches of one pattern become: "Replace" among tokenizer.json's normalizers and
/// decoders.
class Replacement {
 public:
  /// Error when `field` is not a Replace. `growth` is how many times longer the steps read so far
  /// can make a text; it grows, and an Error says when it becomes absurd.
  Replacement(const JsonField& field, double& growth);
  [[nodiscard]] std::string apply(std::string_view text) const;
  /// Of apply(text), how many bytes at its beginning stand for the first `origin` bytes of `text`.
  [[nodiscard]] std::size_t origin_after(std::string_view text, std::size_t origin) const;

 private:
  [[nodiscard]] std::vector<TextRange> find_all(std::string_view text) const;

  std::string what_;
  std::optional<Regex> regex_;  // in place of `what_`
  std::string with_;
};

/// A chain of the normalizers that tokenizer.json can have.
/// A text, and how many bytes at its beginning stand for the first character of the text that it
/// was made from; 0: that is gone.
struct TracedText {
  std::string text;
  std::size_t origin = 0;
};

class Normalizer {
 public:
  /// Changes nothing.
  Normalizer() = default;
  /// Error when `field` is not a normalizer, Unsupported when it is another one.
  explicit Normalizer(const JsonField& field);

  [[nodiscard]] std::string apply(std::string_view text) const;
  /// The same, and what becomes of the first `origin` bytes.
  [[nodiscard]] TracedText trace(std::string_view text, std::size_t origin) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  struct Step {
    std::function<std::string(std::string_view)> apply;
    /// What becomes of the first bytes; null: what apply() makes of them alone.
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

/// `text` with every `what` (not empty) replaced, left to right.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

}  // namespace winnow
