#include "eval/tasks/csv.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "tokenizer/utf8.h"

namespace winnow::eval {
namespace {

struct Row {
  int line = 1;  // the row's first line
  std::vector<std::string> fields;
};

class CsvReader {
 public:
  CsvReader(std::istream& stream, const std::string& name)
      : text_(std::istreambuf_iterator<char>(stream), {}), name_(name) {
    if (text_.starts_with("\xEF\xBB\xBF")) {
      at_ = 3;  // a byte order mark
    }
  }

  /// False at the end.
  bool read(Row& row) {
    while (at_ < text_.size() && (text_[at_] == '\n' || text_[at_] == '\r')) {
      skip();
    }
    row = {line_, {}};
    if (at_ == text_.size()) {
      return false;
    }
    for (;;) {
      row.fields.push_back(at_ < text_.size() && text_[at_] == '"' ? quoted() : plain());
      if (at_ == text_.size() || text_[at_] != ',') {
        break;
      }
      ++at_;
    }
    require(at_ == text_.size() || text_[at_] == '\n' || text_[at_] == '\r',
            "{}:{}: expected a comma or a line's end behind a quoted field", name_, line_);
    return true;
  }

 private:
  void skip() { line_ += text_[at_++] == '\n' ? 1 : 0; }

  std::string plain() {
    const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
    std::string field = text_.substr(at_, end - at_);
    at_ = end;
    return field;
  }

  std::string quoted() {
    const int begin = line_;
    std::string field;
    for (++at_; at_ < text_.size(); skip()) {
      if (text_[at_] == '"') {
        if (++at_; at_ == text_.size() || text_[at_] != '"') {
          return field;
        }
      }
      field += text_[at_];
    }
    fail("{}:{}: a quote is opened and not closed", name_, begin);
  }

  std::string text_;
  const std::string& name_;
  std::size_t at_ = 0;
  int line_ = 1;
};

}  // namespace

std::vector<DataLine> read_csv(std::istream& stream, const std::string& name) {
  CsvReader reader(stream, name);
  Row names;
  require(reader.read(names), "{}: expected a row of names, found none", name);
  std::vector<DataLine> lines;
  for (Row row; reader.read(row);) {
    const std::string where = fmt::format("{}:{}", name, row.line);
    require(row.fields.size() == names.fields.size(), "{}: expected {} fields, found {}", where,
            names.fields.size(), row.fields.size());
    nlohmann::json value = nlohmann::json::object();
    for (std::size_t i = 0; i < names.fields.size(); ++i) {
      require(is_valid_utf8(row.fields[i]), "{}: field \"{}\" is not UTF-8", where,
              names.fields[i]);
      value[names.fields[i]] = std::move(row.fields[i]);
    }
    lines.emplace_back(std::move(value), where);
  }
  require(!lines.empty(), "{}: expected a case per row, found none", name);
  return lines;
}

}  // namespace winnow::eval
