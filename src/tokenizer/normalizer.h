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

 private:
  std::string what_;
  std::optional<Regex> regex_;  // in place of `what_`
  std::string with_;
};

/// A chain of the normalizers that tokenizer.json can have.
class Normalizer {
 public:
  /// Changes nothing.
  Normalizer() = default;
  /// Error when `field` is not a normalizer, Unsupported when it is another one.
  explicit Normalizer(const JsonField& field);

  [[nodiscard]] std::string apply(std::string_view text) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  using Step = std::function<std::string(std::string_view)>;

  void add(const JsonField& field, int depth);
  void add_bert(const JsonField& field);

  std::vector<Step> steps_;
  double growth_ = 1;
};

/// `text` with every `what` (not empty) replaced, left to right.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

}  // namespace winnow
