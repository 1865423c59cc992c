// [NAME(KEY=VALUE, ...), ...]
// (Llama 3.2 and 4, if their template shows calls this way)
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "checkpoint/json_text.h"
#include "server/openai/tools/call_list_reader.h"
#include "server/openai/tools/formats.h"
#include "server/openai/tools/keyed_arguments.h"
#include "server/openai/tools/python_literal.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using grammar::Expression;
using grammar::ExpressionPtr;

// NAME(KEY=VALUE, ...), reported when it is whole.
class PythonCallReader : public ToolCallReader {
 public:
  bool read(std::string& text, std::vector<ToolDelta>& deltas) override {
    std::size_t at = 0;
    skip_blanks(text, at);
    const std::size_t open = std::min(text.find('(', at), text.size());
    const std::string name = text.substr(at, open - at);
    if (!name.empty() && !is_function_name(name)) {
      return false;
    }
    if (open == text.size()) {
      return true;
    }
    at = open + 1;
    Json arguments = Json::object();
    const Match found = read_arguments(text, at, arguments);
    if (found != Match::whole) {
      return found == Match::beginning;
    }
    deltas.push_back({name, json_text(arguments)});
    text.erase(0, at);
    ended_ = true;
    return true;
  }
  [[nodiscard]] bool ended() const override { return ended_; }

 private:
  static Match read_arguments(std::string_view text, std::size_t& at, Json& arguments) {
    while (true) {
      skip_blanks(text, at);
      if (at == text.size()) {
        return Match::beginning;
      }
      if (text[at] == ')') {
        ++at;
        return Match::whole;
      }
      const std::size_t equals = text.find('=', at);
      const std::string key(text.substr(at, std::min(equals, text.size()) - at));
      if (!is_function_name(key)) {
        return Match::other;
      }
      if (equals == std::string_view::npos) {
        return Match::beginning;
      }
      at = equals + 1;
      if (const Match found = python_literal(text, at, arguments[key]); found != Match::whole) {
        return found;
      }
      skip_blanks(text, at);
      if (at < text.size() && text[at] != ')' && text[at] != ',') {
        return Match::other;
      }
      at += at < text.size() && text[at] == ',' ? 1 : 0;
    }
  }

  bool ended_ = false;
};

// The same rules, with Python's names for true, false and null.
ExpressionPtr in_python(const ExpressionPtr& expression) {
  Expression copy = *expression;
  if (copy.kind == Expression::Kind::bytes) {
    copy.bytes = copy.bytes == "true"    ? "True"
                 : copy.bytes == "false" ? "False"
                 : copy.bytes == "null"  ? "None"
                                         : copy.bytes;
  }
  for (ExpressionPtr& part : copy.parts) {
    part = in_python(part);
  }
  return std::make_shared<const Expression>(std::move(copy));
}

class PythonicFormat : public ToolFormat {
 public:
  std::string_view name() const override { return "pythonic"; }
  std::string_view begin() const override { return "["; }
  std::unique_ptr<ToolCallReader> reader(const ToolRequest& /*tools*/) const override {
    return std::make_unique<CallListReader>(std::vector<std::string>{"["}, ",", "]",
                                            [] { return std::make_unique<PythonCallReader>(); });
  }
  ExpressionPtr call(const Tool& tool, grammar::RuleSet& rules) const override {
    const auto write = [&](const std::string& key, const Json& schema) {
      grammar::RuleSet value = value_rules(tool, schema);
      for (ExpressionPtr& body : value.bodies) {
        body = in_python(body);
      }
      return grammar::sequence({grammar::bytes(key + "="), grammar::reference(rules.embed(value))});
    };
    return grammar::sequence({grammar::bytes(tool.name + "("),
                              keyed_arguments(tool, rules, ", ", write), grammar::bytes(")")});
  }
  std::string_view opening() const override { return "["; }
  std::string_view between() const override { return ", "; }
  std::string_view closing() const override { return "]"; }
  bool wrote(std::string_view rendered, std::string_view name) const override {
    return rendered.find(fmt::format("[{}(", name)) != std::string_view::npos;
  }
};

}  // namespace

const ToolFormat& pythonic_format() {
  static const PythonicFormat format;
  return format;
}

}  // namespace winnow::server
