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

/// One line of a data file. Getters take names of which the first that is there counts: data sets
/// exist in several spellings. They throw Error naming file:line, field and what was expected.
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
  /// A number in [low, high], also when it is written as a text ("3").
  [[nodiscard]] int index(Names names, int low, int high) const;
  /// An object under a name.
  [[nodiscard]] DataLine object(Names names) const;
  /// An object that is written as a text.
  [[nodiscard]] DataLine object_in_text(Names names) const;
  /// Throws: the field is not what was expected.
  [[noreturn]] void reject(Names names, std::string_view expected) const;

 private:
  nlohmann::json value_;
  std::string where_;
};

/// All lines of a file that are not blank; of a .csv file all rows, as objects of texts that the
/// first row names. Error when it cannot be read, has none, or a line is no JSON object.
std::vector<DataLine> read_data(const std::filesystem::path& file);
/// The same from a stream of JSON lines, which messages call `name`.
std::vector<DataLine> read_data(std::istream& stream, const std::string& name);

}  // namespace winnow::eval
