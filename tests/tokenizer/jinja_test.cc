// Templates compared with Jinja2's output (jinja/*.json, written by the scripts there), and
// features that Jinja2 does not have: limits and one-line errors.
#include "tokenizer/jinja/template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"

namespace winnow::jinja {
namespace {

using nlohmann::ordered_json;
using ::testing::HasSubstr;

constexpr std::time_t kNow = 1700000000;

ordered_json read_json(const std::filesystem::path& path) {
  return ordered_json::parse(std::ifstream(path));
}

/// The output, or nullopt and the error's text in `error`.
std::optional<std::string> render(const std::string& source, const ordered_json& context,
                                  std::string* error = nullptr) {
  Template::Variables variables;
  for (const auto& [name, value] : context.items()) {
    variables.emplace_back(name, from_json(value));
  }
  try {
    return Template(source, "test").render(std::move(variables), kNow);
  } catch (const Error& e) {
    if (error != nullptr) {
      *error = e.what();
    }
    return std::nullopt;
  }
}

std::string template_error(const std::string& source, const ordered_json& context = {}) {
  std::string error = "no error";
  render(source, context, &error);
  return error;
}

void check(const std::string& source, const ordered_json& context, const ordered_json& expected) {
  std::string error;
  const std::optional<std::string> got = render(source, context, &error);
  if (expected.is_null()) {
    EXPECT_FALSE(got.has_value()) << source << "\ngives " << *got << "\nbut Jinja2 has an error";
  } else {
    EXPECT_EQ(got, expected.get<std::string>()) << source << "\n" << error;
  }
}

class Jinja : public ::testing::Test {
 protected:
  Jinja() {
    setenv("TZ", "UTC", 1);
    tzset();
  }
};

TEST(JinjaTargets, MayHaveTuplesAnywhere) {
  const char* source =
      "{% for a, (b, c), d in [(1, (2, 3), 4)] %}{{ a }}{{ b }}{{ c }}{{ d }}{% endfor %}";
  EXPECT_EQ(render(source, ordered_json::object()), "1234");
}

TEST_F(Jinja, LanguageCases) {
  const ordered_json file =
      read_json(WINNOW_SOURCE_DIR "/tests/tokenizer/jinja/language_cases.json");
  for (const ordered_json& entry : file["cases"]) {
    check(entry["template"], file["context"], entry["expected"]);
  }
}

TEST_F(Jinja, BuiltinCases) {
  const std::string directory = WINNOW_SOURCE_DIR "/tests/tokenizer/jinja/";
  const ordered_json context = read_json(directory + "language_cases.json")["context"];
  const ordered_json file = read_json(directory + "builtin_cases.json");
  for (const ordered_json& entry : file["cases"]) {
    check(entry["template"], context, entry["expected"]);
  }
}

TEST_F(Jinja, ChatCases) {
  const ordered_json file = read_json(WINNOW_SOURCE_DIR "/tests/tokenizer/jinja/chat_cases.json");
  for (const ordered_json& entry : file["cases"]) {
    ordered_json context = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
    context["tools"] = nullptr;
    context["documents"] = nullptr;
    context.update(file["variables"][entry[2].get<std::size_t>()]);
    context["messages"] = file["conversations"][entry[1].get<std::size_t>()];
    context["add_generation_prompt"] = entry[3];
    check(file["templates"][entry[0].get<std::string>()], context, entry[4]);
  }
}

/// More cases than the repository has, e.g. from jinja/fuzz.py: a file of JSON lines.
TEST_F(Jinja, CasesFromOutside) {
  const char* path = std::getenv("WINNOW_JINJA_CASES");
  if (path == nullptr) {
    GTEST_SKIP() << "WINNOW_JINJA_CASES names no file";
  }
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const ordered_json entry = ordered_json::parse(line);
    check(entry["template"], entry["context"], entry["expected"]);
  }
}

TEST_F(Jinja, ErrorsAreOneLineWithNameAndLine) {
  EXPECT_EQ(template_error("a\n{{ x.y }}"), "test:2: 'x' is undefined");
  EXPECT_EQ(template_error("a\n\n{% if 1 %}\n{{ raise_exception('no\ngood') }}{% endif %}"),
            "test:4: no good");
  EXPECT_EQ(template_error("{# a\n b #}\n{{ 1 + }}"), "test:3: expected an expression, found '}}'");
  EXPECT_EQ(template_error("{{\n1 +\n'a'}}"), "test:2: + does not work between a int and a str");
  EXPECT_THAT(template_error("{% macro m() %}\n{{ nothing.x }}{% endmacro %}\n{{ m() }}"),
              HasSubstr("test:2:"));
  EXPECT_THAT(template_error("{{ d.x.y }}", {{"d", ordered_json::object()}}),
              HasSubstr("the dict has no key 'x'"));
  EXPECT_THAT(template_error("{{ [].append(1) }}"), HasSubstr("would change a list"));
}

TEST_F(Jinja, SaysWhatIsNotSupported) {
  EXPECT_EQ(template_error("\n{% trans %}"), "test:2: the tag '{% trans %}' is not supported");
  EXPECT_EQ(template_error("\n{% include 'x' %}"),
            "test:2: {% include %} needs another template, but a chat template is a single file");
  EXPECT_EQ(template_error("{% autoescape true %}{% endautoescape %}"),
            "test:1: {% autoescape true %} is not supported");
  EXPECT_THAT(template_error("{{ range(99) | list | pprint }}"),
              HasSubstr("more than 80 characters"));
  EXPECT_THAT(template_error("{{ 99999999999999999999 }}"), HasSubstr("too large"));
  EXPECT_THAT(template_error("{{ 9223372036854775807 + 1 }}"), HasSubstr("too large"));
  EXPECT_THAT(template_error("{% set ns = namespace() %}{% set ns._x = 1 %}"), HasSubstr("'_x'"));
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += text;
  }
  return all;
}

// Jinja2 rejects some of these at compile time; winnow must do so only when they are called.
TEST_F(Jinja, UnknownFiltersAndTestsFailWhereTheyAreCalled) {
  EXPECT_EQ(template_error("{{ 1 | nope(2) }}"), "test:1: no filter is named 'nope'");
  EXPECT_EQ(template_error("\n{{ 1 is nope 2 }}"), "test:2: no test is named 'nope'");
  EXPECT_EQ(template_error("{{ [1] | map('nope') | list }}"),
            "test:1: map: no filter is named 'nope'");
  EXPECT_EQ(template_error("{{ [1] | select('nope') | list }}"),
            "test:1: select: no test is named 'nope'");
  for (const char* source :
       {"{% if false %}{{ 1 | nope }}{% endif %}", "{% for x in [] %}{{ x | nope }}{% endfor %}",
        "{% macro m() %}{{ 1 is nope }}{% endmacro %}", "{{ 1 | nope.more if false }}",
        "{% if false %}{% filter nope %}{% endfilter %}{% include 'x' %}{% endif %}"}) {
    EXPECT_EQ(render(source, {}), "") << source;
  }
}

TEST_F(Jinja, HostileTemplatesEndInAnError) {
  const std::string many = repeated("(", 100000);
  const std::string grow = "{% set ns = namespace(s='a', l=[1]) %}{% for i in range(100) %}";
  const std::string forever = "{% for a in range(99999) %}";
  const std::string end = "{% endfor %}";
  const std::string hostile[] = {
      "{{ " + many,
      "{{ " + repeated("[", 100000),
      "{{ " + repeated("-", 100000) + "1 }}",
      "{{ " + repeated("not ", 100000) + "1 }}",
      "{{ 1" + repeated("+1", 100000) + " }}",
      "{{ 1" + repeated("|abs", 100000) + " }}",
      "{{ a" + repeated(".b", 100000) + " }}",
      "{{ 1" + repeated(" if 1 else 1", 100000) + " }}",
      repeated("{% if 1 %}", 100000),
      "{% for " + many + "x in y %}{% endfor %}",
      "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
      "{% macro m() %}{% for x in [1] %}{{ [m()] }}{% endfor %}{% endmacro %}{{ m() }}",
      "{{ 'a' * 10000000000 }}",
      "{{ [1] * 10000000000 }}",
      "{{ 2 ** 9999999999 }}",
      grow + "{% set ns.s = ns.s + ns.s %}" + end,
      grow + "{% set ns.s = ns.s ~ ns.s %}" + end,
      grow + "{% set ns.l = ns.l + ns.l %}" + end,
      grow + grow + "{% set ns.l = [ns.l] %}" + end + "{{ ns.l }}" + end,
      grow + "{% set ns.l = [ns.l, ns.l] %}" + end + "{{ ns.l }}",
      "{% set ns = namespace() %}{% set ns.self = ns %}",
      "{% set ns = namespace() %}{% set ns.self = [ns] %}",
      forever + forever + forever + end + end + end,
      forever + "{{ 'x' * 100000 }}" + end,
      "{{ ['x'] * 99999 | join('y' * 100000) }}",
      "{% set a = 'a' * 10000000 %}{{ (a ~ 'b') in (a ~ a) }}",
      "{{ ('a' * 10000000).replace('', 'b' * 1000) }}",
      "{{ range(99999) | map('string') | unique | list }}",
      "{{ ([range(99999) | list] * 1000) | sort }}",
      "{{ 'a' | indent(999999999) }}",
      "{{ [[1] * 1000] | tojson(indent=99999999) }}",
      "{{ range(-9223372036854775807, 9223372036854775807) }}",
      "{{ strftime_now('%c' * 200) }}",
      "{{ '%9999999999d' % 1 }}",
      "{{ '%*d' % (9999999999, 1) }}",
      "{{ '%.9999d' % 1 }}{{ '%.9999f' % 1.0 }}",
      "{{ '%999999s' % 'a' * 99999 }}",
      "{{ '{:9999999999}'.format(1) }}",
      "{{ '{:.99999f}'.format(1.0) }}",
      "{{ " + repeated("'{:", 1) + repeated("{:", 1000) + repeated("}", 1001) + "'.format(1) }}",
      "{{ 'a'.center(9999999999) }}",
      "{{ '1'.zfill(9999999999) }}",
      "{{ ('\\t' * 9999999).expandtabs(1000) }}",
      "{{ [1] | batch(9999999999, 0) | list }}",
      "{{ [1] | slice(9999999999) | list }}",
      forever + "{{ range(99999) | batch(1) | list }}" + end,
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% for x in [1] recursive %}{{ loop.changed(loop) }}{% endfor %}",
      "{% for x in [1] %}{{ loop.changed([loop.changed]) }}{% endfor %}",
  };
  for (const std::string& source : hostile) {
    EXPECT_THAT(template_error(source), HasSubstr("test:1: ")) << source.substr(0, 200);
  }
}

TEST_F(Jinja, DeepVariablesEndInAnError) {
  ordered_json deep = 1;
  for (int i = 0; i < 500; ++i) {
    deep = ordered_json::array({std::move(deep)});
  }
  EXPECT_THROW((void)from_json(deep), Error);
}

TEST_F(Jinja, OrdinaryLoadsStayWithinTheLimits) {
  ordered_json messages = ordered_json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back(
        {{"role", i % 2 == 0 ? "user" : "assistant"}, {"content", repeated("lorem ipsum ", 400)}});
  }
  const ordered_json file = read_json(WINNOW_SOURCE_DIR "/tests/tokenizer/jinja/chat_cases.json");
  for (const char* name : {"llama3.1", "qwen3", "mistral"}) {
    std::string error;
    const auto text = render(file["templates"][name],
                             {{"messages", messages},
                              {"tools", nullptr},
                              {"bos_token", ""},
                              {"eos_token", ""},
                              {"add_generation_prompt", true}},
                             &error);
    ASSERT_TRUE(text.has_value()) << name << ": " << error;
    EXPECT_GT(text->size(), std::size_t{2000} * 400 * 11) << name;
  }
}

TEST_F(Jinja, MalformedUtf8IsReplaced) {
  Template::Variables variables;
  variables.emplace_back("x", from_json(ordered_json("a\xFF"
                                                     "b")));
  EXPECT_EQ(Template("{{ x }}\xC3", "test").render(std::move(variables), kNow),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST_F(Jinja, ATemplateRendersAgainAndAgain) {
  const Template counter(
      "{% set ns = namespace(n=0) %}{% for i in range(3) %}"
      "{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}",
      "test");
  EXPECT_EQ(counter.render({}, kNow), "3");
  EXPECT_EQ(counter.render({}, kNow), "3");
}

}  // namespace
}  // namespace winnow::jinja
