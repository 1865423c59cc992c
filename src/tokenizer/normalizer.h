// The "normalizer" of tokenizer.json: what happens to text before it is cut.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tokenizer/json_field.h"

namespace winnow {

/// `text` (valid UTF-8) in Unicode's normalization form C, as of Unicode 9 (unicode_tables.h).
std::string to_nfc(std::string_view text);

/// What one plain string becomes: "Replace" among tokenizer.json's normalizers and decoders.
class Replacement {
 public:
  /// Error when `field` is not a Replace. `growth` is how many times longer the steps read so far
  /// can make a text; it grows, and an Error says when it becomes absurd.
  Replacement(const JsonField& field, double& growth);
  [[nodiscard]] std::string apply(std::string_view text) const;

 private:
  std::string what_;
  std::string with_;
};

/// NFC, Prepend, Replace of a string, and sequences of them.
class Normalizer {
 public:
  /// Changes nothing.
  Normalizer() = default;
  /// Error when `field` is not a normalizer, Unsupported when it is another one.
  explicit Normalizer(const JsonField& field);

  [[nodiscard]] std::string apply(std::string_view text) const;
  [[nodiscard]] bool empty() const { return steps_.empty(); }

 private:
  struct Nfc {};
  struct Prepend {
    std::string text;
  };
  using Step = std::variant<Nfc, Prepend, Replacement>;

  void add(const JsonField& field, int depth);
  static std::string apply(const Step& step, std::string_view text);

  std::vector<Step> steps_;
  double growth_ = 1;
};

/// `text` with every `what` (not empty) replaced, left to right.
std::string replace_all(std::string_view text, std::string_view what, std::string_view with);

}  // namespace winnow
