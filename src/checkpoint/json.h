// Strict reading of JSON, with errors that name file and key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace winnow {

/// Parses `text`; `where` is its name in messages. Errors: not JSON, not UTF-8, a key twice in
/// one object (two readers could disagree about which one counts), nesting deeper than 64. Python's
/// NaN and Infinity become strings (with_quoted_constants()).
nlohmann::json parse_json(std::string_view text, const std::string& where);

/// `text` with the NaN, Infinity and -Infinity that Python's json writes in quotes: JSON has no
/// such numbers. A reader that expects a number there will report a string. nullopt if there are
/// none.
std::optional<std::string> with_quoted_constants(std::string_view text);

/// The library's message without its tag "[json.exception...]", as one printable line.
std::string plain_message(const nlohmann::json::exception& error);

/// The text of a file of at most 100 MB. Throws Error if it cannot be read.
std::string read_text_file(const std::filesystem::path& path);

/// `text` as a JSON string in printable ASCII, with quotes, and shortened if it is very long.
/// Messages use it for names that come from files, so that they stay one readable line.
std::string in_quotes(std::string_view text);

/// A value in a message: itself if it is short, else its type ("an array").
std::string described(const nlohmann::json& value);

/// Typed access to the keys of one JSON object. A key with a null value counts as absent. Every
/// getter throws Error that names file, key, the expected and the found value.
class JsonObject {
 public:
  /// `value` must outlive this; throws Error if it is not an object. `where`: the file in messages.
  JsonObject(const nlohmann::json& value, std::string where);

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const nlohmann::json& document() const { return *value_; }
  [[nodiscard]] bool has(const std::string& key) const { return find(key) != nullptr; }
  /// Whether `key` is there, even with the value null.
  [[nodiscard]] bool states(const std::string& key) const { return value_->contains(key); }
  /// The value of `key`, or nullptr if it is absent or null.
  [[nodiscard]] const nlohmann::json* find(const std::string& key) const;

  [[nodiscard]] int integer(const std::string& key, int lowest, int highest) const;
  [[nodiscard]] int integer(const std::string& key, int lowest, int highest, int absent) const;
  [[nodiscard]] double number(const std::string& key, double lowest, double highest) const;
  [[nodiscard]] double number(const std::string& key, double lowest, double highest,
                              double absent) const;
  [[nodiscard]] bool boolean(const std::string& key, bool absent) const;
  [[nodiscard]] std::string text(const std::string& key, const std::string& absent) const;
  /// The object under `key`; throws Error if it is absent.
  [[nodiscard]] JsonObject object(const std::string& key) const;

  /// Throws Error: the value of `key` is not what was `expected`.
  [[noreturn]] void reject(const std::string& key, std::string_view expected) const;

 private:
  const nlohmann::json* value_;
  std::string where_;
};

}  // namespace winnow
