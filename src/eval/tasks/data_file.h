// Data sets as JSON lines, with errors that name file, line and field.
#pragma once

#include <filesystem>
#include <initializer_list>
#include <istream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::eval {

/// One line of a data file. Getters take alternative names, since data sets exist in several
/// spellings, and use the first that exists. They throw Error naming file:line, field, expectation.
class DataLine {
 public:
  DataLine(nlohmann::json value, std::string where)
      : value_(std::move(value)), where_(std::move(where)) {}

  using Names = std::initializer_list<const char*>;

  [[nodiscard]] const std::string& where() const { return where_; }
  [[nodiscard]] const nlohmann::json* find(Names names) const;
  [[nodiscard]] std::string text(Names names) const;
  [[nodiscard]] std::string text(Names names, const std::string& absent) const;
  [[nodiscard]] std::vector<std::string> texts(Names names) const;
  [[nodiscard]] bool boolean(Names names) const;
  /// A number in [low, high], also if it is a string ("3").
  [[nodiscard]] int index(Names names, int low, int high) const;
  /// An object under a name.
  [[nodiscard]] DataLine object(Names names) const;
  /// An object that is stored as a string.
  [[nodiscard]] DataLine object_in_text(Names names) const;
  /// Throws: the field is not what was expected.
  [[noreturn]] void reject(Names names, std::string_view expected) const;

 private:
  nlohmann::json value_;
  std::string where_;
};

/// All non-blank lines of a file; for a .csv file all rows, as objects of texts with the
/// first row's names. Error when it cannot be read, is empty, or a line is not a JSON object.
std::vector<DataLine> read_data(const std::filesystem::path& file);
/// The same from a stream of JSON lines; `name`: its name in messages.
std::vector<DataLine> read_data(std::istream& stream, const std::string& name);

}  // namespace winnow::eval
