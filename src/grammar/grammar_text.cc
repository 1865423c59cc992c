#include "grammar/grammar_text.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/error.h"
#include "grammar/regex_parser.h"
#include "grammar/rule_parser.h"

namespace winnow::grammar {
namespace {

class GbnfParser : public RuleParser {
 public:
  explicit GbnfParser(std::string_view text) : RuleParser(GrammarScanner(text, "#")) {}

  RuleSet parse() {
    for (in_.skip(true); !in_.at_end(); in_.skip(true)) {
      const std::string name = in_.name();
      in_.skip(true);
      require(!name.empty() && in_.take("::="), "{}: expected a rule (name ::= ...)", in_.where());
      define(name, alternatives(/*nested=*/false));
    }
    return finish("root");
  }

 private:
  // Lines that do not start a rule continue the one before.
  bool goes_on() override {
    const std::size_t place = in_.place();
    in_.skip(true);
    const std::size_t begin = in_.place();
    const std::string name = in_.name();
    in_.skip(true);
    const bool begins_rule = in_.at_end() || (!name.empty() && in_.sees("::="));
    in_.go_to(begins_rule ? place : begin);
    return !begins_rule && begin != place;
  }

  ExpressionPtr element() override {
    if (in_.take("\"")) {
      return bytes(in_.quoted('"'));
    }
    if (in_.take("[")) {
      return characters(char_class());
    }
    if (in_.take("(")) {
      return group(")");
    }
    if (in_.take(".")) {
      return characters(all_code_points());
    }
    require(!in_.sees("<") && !in_.sees("!<"), "{}: tokens are not supported, only texts",
            in_.where());
    const std::size_t place = in_.place();
    const std::string name = in_.name();
    if (name.empty()) {
      return nullptr;
    }
    const std::size_t behind = in_.place();
    in_.skip(true);
    if (in_.sees("::=")) {  // the next rule starts here
      in_.go_to(place);
      return nullptr;
    }
    in_.go_to(behind);
    return reference(rule(name));
  }

  CodePoints char_class() {
    const bool negated = in_.take("^");
    CodePoints set;
    while (!in_.take("]")) {
      const std::uint32_t low = in_.character();
      std::uint32_t high = low;
      if (in_.sees("-") && !in_.sees("-]")) {
        in_.take("-");
        high = in_.character();
      }
      require(low <= high && high <= kLastCodePoint, "{}: not a range of characters", in_.where());
      set.push_back({low, high});
    }
    set = normalized(std::move(set));
    return negated ? complement(set) : set;
  }
};

class LarkParser : public RuleParser {
 public:
  explicit LarkParser(std::string_view text) : RuleParser(GrammarScanner(text, "//")) {}

  RuleSet parse() {
    for (in_.skip(true); !in_.at_end(); in_.skip(true)) {
      if (in_.take("%")) {
        directive();
        continue;
      }
      in_.take("?") || in_.take("!");  // these only affect parse trees
      const std::string name = in_.name();
      require(!name.empty(), "{}: expected a rule (name: ...)", in_.where());
      require(!in_.sees("{"), "{}: templates are not supported", in_.where());
      if (in_.take(".")) {
        in_.integer();  // a priority, which only parsers need
      }
      in_.skip(true);
      require(in_.take(":"), "{}: expected a rule (name: ...)", in_.where());
      define(name, alternatives(/*nested=*/false));
    }
    return finish("start");
  }

 private:
  void directive() {
    const std::string name = in_.name();
    require(name == "import", "{}: %{} is not supported", in_.where(), name);
    in_.skip(false);
    const std::string library = in_.name();
    require(library == "common" && in_.take("."), "{}: only common.NAME can be imported",
            in_.where());
    std::vector<std::string> names;
    names.push_back(in_.name());
    std::string alias = names.back();
    in_.skip(false);
    if (in_.take("->")) {
      in_.skip(false);
      alias = in_.name();
    }
    define(alias, common(names.back()));
  }

  ExpressionPtr common(const std::string& name) const {
    static constexpr std::pair<std::string_view, std::string_view> kTerminals[] = {
        {"DIGIT", "[0-9]"},
        {"HEXDIGIT", "[0-9a-fA-F]"},
        {"INT", "[0-9]+"},
        {"SIGNED_INT", "[+-]?[0-9]+"},
        {"DECIMAL", "[0-9]+\\.[0-9]*|\\.[0-9]+"},
        {"FLOAT", "[0-9]+[eE][+-]?[0-9]+|(?:[0-9]+\\.[0-9]*|\\.[0-9]+)(?:[eE][+-]?[0-9]+)?"},
        {"NUMBER", "(?:[0-9]+\\.[0-9]*|\\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?"},
        {"SIGNED_NUMBER", "[+-]?(?:[0-9]+\\.[0-9]*|\\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?"},
        {"LCASE_LETTER", "[a-z]"},
        {"UCASE_LETTER", "[A-Z]"},
        {"LETTER", "[a-zA-Z]"},
        {"WORD", "[a-zA-Z]+"},
        {"CNAME", "[_a-zA-Z][_a-zA-Z0-9]*"},
        {"ESCAPED_STRING", "\"(?:[^\"\\\\\\n]|\\\\.)*\""},
        {"WS_INLINE", "[ \\t]+"},
        {"WS", "[ \\t\\f\\r\\n]+"},
        {"NEWLINE", "(?:\\r?\\n)+"}};
    const auto* found =
        std::ranges::find(kTerminals, name, &std::pair<std::string_view, std::string_view>::first);
    require(found != std::end(kTerminals), "{}: common.{} is not known", in_.where(), name);
    return parse_regex(found->second, RegexMatch::whole);
  }

  // A line that starts with | continues the rule.
  bool goes_on() override {
    const std::size_t place = in_.place();
    in_.skip(true);
    if (in_.sees("|") && in_.place() != place) {
      return true;
    }
    in_.go_to(place);
    return false;
  }

  ExpressionPtr element() override {
    if (in_.take("->")) {  // an alias for the parse tree
      in_.skip(false);
      (void)in_.name();
      in_.skip(false);
    }
    if (in_.take("\"")) {
      return text_or_range();
    }
    if (in_.take("/")) {
      return regex();
    }
    if (in_.take("(")) {
      return group(")");
    }
    if (in_.take("[")) {
      return optional(group("]"));
    }
    require(!in_.sees("<"), "{}: tokens are not supported, only texts", in_.where());
    const std::size_t place = in_.place();
    in_.take("!") || in_.take("?");
    const std::string name = in_.name();
    if (name.empty() || begins_rule()) {
      in_.go_to(place);
      return nullptr;
    }
    return reference(rule(name));
  }

  bool begins_rule() {
    const std::size_t place = in_.place();
    if (in_.take(".")) {
      in_.integer();
    }
    in_.skip(false);
    const bool is = in_.sees(":");
    in_.go_to(place);
    return is;
  }

  ExpressionPtr text_or_range() {
    const std::string text = in_.quoted('"');
    const std::size_t place = in_.place();
    in_.skip(false);
    if (in_.take("..")) {
      in_.skip(false);
      require(in_.take("\""), "{}: expected \"a\"..\"z\"", in_.where());
      const auto low = code_points_of(text);
      const auto high = code_points_of(in_.quoted('"'));
      require(low.size() == 1 && high.size() == 1 && low[0] <= high[0],
              "{}: not a range of characters", in_.where());
      return characters({{low[0], high[0]}});
    }
    in_.go_to(place);
    return in_.take("i") ? in_any_case(text) : bytes(text);
  }

  static ExpressionPtr in_any_case(const std::string& text) {
    std::vector<ExpressionPtr> parts;
    for (const std::uint32_t c : code_points_of(text)) {
      CodePoints set{{c, c}};
      if (c < 0x80 && std::isalpha(static_cast<int>(c)) != 0) {
        set.push_back({c ^ 0x20U, c ^ 0x20U});
      }
      parts.push_back(characters(std::move(set)));
    }
    return sequence(std::move(parts));
  }

  ExpressionPtr regex() {
    const std::size_t begin = in_.place();
    for (bool in_class = false; in_class || !in_.sees("/");) {
      const char c = in_.next();
      if (c == '\\') {
        in_.next();
      }
      in_class = c == '[' || (in_class && c != ']');
    }
    std::string pattern(in_.between(begin, in_.place()));
    in_.take("/");
    const char* const kFlags = "imslux";
    require(in_.at_end() || std::string_view(kFlags).find(in_.between(
                                in_.place(), in_.place() + 1)) == std::string_view::npos,
            "{}: flags of regular expressions are not supported", in_.where());
    for (auto slash = pattern.find("\\/"); slash != std::string::npos;
         slash = pattern.find("\\/", slash + 1)) {
      pattern.erase(slash, 1);
    }
    try {
      return parse_regex(pattern, RegexMatch::whole);
    } catch (const Error& error) {
      fail("{}: {}", in_.where(), error.what());
    }
  }
};

}  // namespace

RuleSet parse_grammar(std::string_view text) {
  return text.find("::=") == std::string_view::npos ? LarkParser(text).parse()
                                                    : GbnfParser(text).parse();
}

}  // namespace winnow::grammar
