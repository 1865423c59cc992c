// The cost of a constraint form: compiling it, and the mask of every token of matching answers.
// token_grammar_benchmark TOKENIZER_DIRECTORY [OUT.json]: a random walk through each form, many
// times over, first with the results of preparing, then again. All times are of this thread alone.
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "grammar/grammar_text.h"
#include "grammar/json_schema.h"
#include "grammar/regex_parser.h"
#include "grammar/token_grammar.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

using grammar::RuleSet;
using Json = nlohmann::ordered_json;

constexpr double kPrepareSeconds = 0.08;  // as the server does
constexpr int kAnswers = 200;
constexpr int kMostTokens = 200;

struct Form {
  const char* name;
  RuleSet (*rules)();
};

RuleSet schema(const char* text) {
  return grammar::json_schema_rules(Json::parse(text));
}

RuleSet regex(const char* pattern) {
  RuleSet rules;
  rules.add("root", grammar::parse_regex(pattern, grammar::RegexMatch::whole));
  return rules;
}

const std::vector<Form> kForms{
    {"any JSON object", [] { return grammar::json_object_rules(); }},
    {"two fields",
     [] {
       return schema(R"({"type": "object", "properties": {"name": {"type": "string"},
                     "age": {"type": "integer"}}, "required": ["name", "age"]})");
     }},
    {"a tree of orders",
     [] {
       return schema(R"({"$defs": {"item": {"type": "object", "properties": {
         "sku": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4}$"}, "title": {"type": "string"},
         "price": {"type": "number", "minimum": 0, "maximum": 10000},
         "tags": {"type": "array", "items": {"enum": ["new", "sale", "rare"]}, "maxItems": 5},
         "parts": {"type": "array", "items": {"$ref": "#/$defs/item"}}},
         "required": ["sku", "title", "price"]}},
         "type": "object", "properties": {"id": {"type": "string", "format": "uuid"},
         "placed": {"type": "string", "format": "date-time"},
         "status": {"enum": ["open", "paid", "sent", "returned"]},
         "customer": {"type": "object", "properties": {"name": {"type": "string"},
           "email": {"type": "string", "format": "email"}, "age": {"type": "integer", "minimum": 0,
           "maximum": 150}}, "required": ["name", "email"]},
         "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "minItems": 1},
         "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
         "required": ["id", "placed", "status", "customer", "items"]})");
     }},
    {"other names allowed",
     [] {
       return schema(R"({"type": "object", "properties": {"id": {"type": "integer"},
         "name": {"type": "string"}}, "additionalProperties": {"type": "string"}})");
     }},
    {"a string of at most 100 characters",
     [] { return schema(R"({"type": "string", "maxLength": 100})"); }},
    {"20 to 2,000 characters",
     [] { return schema(R"({"type": "string", "minLength": 20, "maxLength": 2000})"); }},
    {"a pattern and a length",
     [] { return schema(R"({"type": "string", "pattern": "^[A-Z][^0-9]+$", "maxLength": 200})"); }},
    {"3 to 50 integers",
     [] {
       return schema(
           R"({"type": "array", "items": {"type": "integer"}, "minItems": 3, "maxItems": 50})");
     }},
    {"up to 20 objects",
     [] {
       return schema(R"({"type": "array", "maxItems": 20, "items": {"type": "object",
         "properties": {"name": {"type": "string", "maxLength": 40},
         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 8}},
         "required": ["name", "tags"]}})");
     }},
    {"twelve strings of different lengths",
     [] {
       Json object{{"type", "object"}, {"additionalProperties", false}};
       for (int i = 1; i <= 12; ++i) {
         const std::string name = fmt::format("field{}", i);
         object["properties"][name] = {{"type", "string"}, {"maxLength", 20 * i}};
         object["required"].push_back(name);
       }
       return grammar::json_schema_rules(object);
     }},
    {"names and places", [] { return regex("[A-Z][a-z]+( [A-Z][a-z]+){1,3}, [0-9]{4}"); }},
    {".{1,200}", [] { return regex(".{1,200}"); }},
    {"[a-z ]{1,200}", [] { return regex("[a-z ]{1,200}"); }},
    {"([a-z]{2,8} ){1,60}", [] { return regex("([a-z]{2,8} ){1,60}"); }},
    {"(\\w+, ){0,30}\\w+", [] { return regex("(\\w+, ){0,30}\\w+"); }},
    {"arithmetic in GBNF", [] {
       return grammar::parse_grammar(
           "root ::= e\ne ::= t ([-+*/] t)*\nt ::= [0-9]+ | \"(\" e \")\"");
     }}};

std::shared_ptr<const grammar::Vocabulary> vocabulary_of(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.has_token(token)) {
      bytes[static_cast<std::size_t>(token)] = tokenizer.token_bytes(token, true);
    }
  }
  return std::make_shared<const grammar::Vocabulary>(std::move(bytes));
}

// A random allowed token, all with the same probability; -1: none is allowed.
std::int32_t any_of(std::span<const std::uint64_t> bits, Random& random) {
  std::int64_t count = 0;
  for (const std::uint64_t word : bits) {
    count += std::popcount(word);
  }
  if (count == 0) {
    return -1;
  }
  auto left = static_cast<std::int64_t>(random.bits() % static_cast<std::uint64_t>(count));
  for (std::size_t i = 0;; ++i) {
    const int here = std::popcount(bits[i]);
    if (left >= here) {
      left -= here;
      continue;
    }
    std::uint64_t word = bits[i];
    for (; left > 0; --left) {
      word &= word - 1;
    }
    return static_cast<std::int32_t>(i * 64 + static_cast<std::size_t>(std::countr_zero(word)));
  }
}

// This thread's CPU time: other load on the machine does not count.
double cpu_microseconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

// Microseconds of every mask of several answers.
std::vector<double> walk(grammar::TokenGrammar& form, std::size_t vocabulary, std::uint64_t seed) {
  std::vector<double> times;
  std::vector<std::uint64_t> bits((vocabulary + 63) / 64);
  for (int answer = 0; answer < kAnswers; ++answer) {
    Random random(seed, static_cast<std::uint64_t>(answer));
    auto state = form.start();
    for (int i = 0; i < kMostTokens; ++i) {
      const double begin = cpu_microseconds();
      form.mask(state, {}, bits);
      times.push_back(cpu_microseconds() - begin);
      const std::int32_t token = any_of(bits, random);
      if (token < 0 || (form.ends(state) && random.uniform() < 0.05)) {
        break;
      }
      state = form.advance(state, token);
    }
  }
  std::ranges::sort(times);
  return times;
}

double at(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

Json measure(const std::string& directory) {
  const auto tokenizer = load_tokenizer(directory);
  double begin = cpu_microseconds();
  const auto lap = [&begin] {
    const double now = cpu_microseconds();
    return (now - std::exchange(begin, now)) * 1e-3;
  };
  const auto vocabulary = vocabulary_of(*tokenizer);
  const double trees = lap();
  Json rows = Json::array();
  fmt::print("{} tokens; their trees, once per server: {:.0f} ms\n\n", vocabulary->size(), trees);
  fmt::print(
      "| form | compile ms | and prepare ms | masks | mean us | p50 | p99 | p99.9 | most | "
      "again p99 |\n|---|---|---|---|---|---|---|---|---|---|\n");
  for (const Form& form : kForms) {
    (void)lap();
    Json row{{"form", form.name}};
    const grammar::Grammar compiled = grammar::compile(form.rules());
    const double compile = lap();
    grammar::TokenGrammar tokens(form.rules(), vocabulary, kPrepareSeconds);
    const double prepare = lap();
    const auto first = walk(tokens, vocabulary->size(), 1);
    const auto again = walk(tokens, vocabulary->size(), 1);
    double sum = 0.0;
    for (const double time : first) {
      sum += time;
    }
    row.update({{"compile_ms", compile},
                {"prepare_ms", prepare},
                {"masks", first.size()},
                {"mean_us", sum / static_cast<double>(first.size())},
                {"p50_us", at(first, 0.5)},
                {"p99_us", at(first, 0.99)},
                {"p99.9_us", at(first, 0.999)},
                {"most_us", first.back()},
                {"again_p99_us", at(again, 0.99)}});
    std::string line = fmt::format("| {} |", form.name);
    for (const auto& [name, value] : row.items()) {
      if (value.is_number()) {
        line += fmt::format(" {:.{}f} |", value.get<double>(), name == "masks" ? 0 : 1);
      }
    }
    fmt::print("{}\n", line);
    rows.push_back(std::move(row));
  }
  return {{"tokens", vocabulary->size()}, {"trees_ms", trees}, {"rows", std::move(rows)}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  const auto result = winnow::measure(argc > 1 ? argv[1] : "assets/dms-cr8");
  if (argc > 2) {
    std::ofstream(argv[2]) << result.dump(1) << "\n";
  }
}
