// The components of a tokenizer.json one by one, compared with Hugging Face's tokenizers
// (component_cases.json, which make_component_cases.py writes).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/regex.h"
#include "tokenizer/regex_syntax.h"
#include "tokenizer/split.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer_json.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;

const json& cases() {
  static const json document =
      json::parse(std::ifstream(WINNOW_SOURCE_DIR "/tests/tokenizer/component_cases.json"));
  return document;
}

Strings strings_of(const Pieces& pieces) {
  Strings strings;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    strings.emplace_back(pieces[i]);
  }
  return strings;
}

Strings split(const std::string& pattern, const std::string& text) {
  Pieces pieces;
  Splitter(Regex(pattern, "here"), SplitBehavior::isolated).split(text, pieces);
  return strings_of(pieces);
}

TEST(Components, RegularExpressions) {
  const Strings texts = cases()["known_texts"];
  for (const json& item : cases()["regexes"]) {
    const auto pattern = item["pattern"].get<std::string>();
    SCOPED_TRACE(pattern);
    if (item.contains("error")) {
      EXPECT_THROW((void)Regex(pattern, "here"), Error);
      continue;
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(split(pattern, texts[i]), item["pieces"][i].get<Strings>()) << texts[i];
    }
  }
}

// Such patterns are split several times as fast, and the common beginning of chats only once.
TEST(Components, PatternsOfModelsRunInPcre2) {
  for (std::size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(to_pcre2_syntax(cases()["regexes"][i]["pattern"].get<std::string>())) << i;
  }
  for (const char* other :
       {"\\d{1,3}+", "a{,3}", "(?m:.)", "(?i)a|b", "[[:alpha:]]", "\\h", "a(?i)b", "[a&&b]",
        "\\p{Alnum}", "\\b", "(a*)*", "(?i:ss)", "\\R", "\\v", "(?:a)+"}) {
    EXPECT_FALSE(to_pcre2_syntax(other)) << other;
  }
}

TEST(Components, RegularExpressionsThatGoOnForever) {
  const std::string text = std::string(60, 'a') + "cb";
  EXPECT_THROW((void)split("(?:a|a)*b{1,1}+", text), Error);
  EXPECT_THROW((void)split("(a*)*b", text), Error);
}

std::size_t first_character(std::string_view text) {
  return text.empty() ? 0 : utf8_length(text.front());
}

TEST(Components, PreTokenizers) {
  const Strings texts = cases()["known_texts"];
  for (const json& item : cases()["pre_tokenizers"]) {
    SCOPED_TRACE(item["spec"].dump());
    const PreTokenizer pre_tokenizer(JsonField(item["spec"], "pre_tokenizer"));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (!item["pieces"][i].is_null()) {
        EXPECT_EQ(strings_of(pre_tokenizer.apply(texts[i], first_character(texts[i]))),
                  item["pieces"][i].get<Strings>())
            << texts[i];
      }
    }
  }
}

TEST(Components, Normalizers) {
  const Strings texts = cases()["texts"];
  for (const json& item : cases()["normalizers"]) {
    SCOPED_TRACE(item["spec"].dump().substr(0, 200));
    const Normalizer normalizer(JsonField(item["spec"], "normalizer"));
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(normalizer.apply(texts[i]), item["texts"][i].get<std::string>()) << texts[i];
    }
  }
}

json document_with(const char* part, const json& value) {
  json vocabulary = json::object();
  for (const auto& token : cases()["tokens"]) {
    vocabulary[token.get<std::string>()] = vocabulary.size();
  }
  json document = {{"model", {{"type", "WordLevel"}, {"vocab", vocabulary}, {"unk_token", "c"}}},
                   {"decoder", nullptr}};
  document[part] = value;
  return document;
}

std::unique_ptr<const Tokenizer> parse_components(const json& document) {
  return parse_tokenizer_json(document.dump(), "tokenizer.json");
}

TEST(Components, Decoders) {
  for (const json& item : cases()["decoders"]) {
    SCOPED_TRACE(item["spec"].dump());
    const auto tokenizer = parse_components(document_with("decoder", item["spec"]));
    for (std::size_t i = 0; i < item["texts"].size(); ++i) {
      const Ids ids = cases()["sequences"][i];
      EXPECT_EQ(tokenizer->decode(ids, false), item["texts"][i].get<std::string>())
          << json(ids).dump();
    }
  }
}

TEST(Components, ASkippedTokenIsNotTheFirst) {
  json document = document_with(
      "decoder", {{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "always"}});
  document["added_tokens"] = {{{"id", 99}, {"content", "<s>"}, {"special", true}},
                              {{"id", 99}, {"content", "_a"}}};
  const auto tokenizer = parse_components(document);
  const auto token = [&](const char* text) { return tokenizer->find(text).value(); };
  const Ids ids{token("<s>"), token("_a"), token("_a")};
  EXPECT_EQ(tokenizer->decode(ids, true), "a a");
  EXPECT_EQ(tokenizer->decode(ids, false), "<s> a a");
}

TEST(Components, Models) {
  const Strings texts = cases()["texts"];
  for (const json& item : cases()["models"]) {
    SCOPED_TRACE(item["model"].dump().substr(0, 100));
    json document = document_with("model", item["model"]);
    document["pre_tokenizer"] = item["pre_tokenizer"];
    const auto plain = parse_components(document);
    const Ids ids_of_marks{4, 3};  // added by the post-processor around the text's ids
    for (std::size_t i = 0; i < texts.size(); ++i) {
      Ids expected = item["ids"][i];
      ASSERT_GE(expected.size(), 2U);
      EXPECT_EQ((Ids{expected.front(), expected.back()}), ids_of_marks);
      EXPECT_EQ(plain->encode(texts[i]), Ids(expected.begin() + 1, expected.end() - 1)) << texts[i];
    }
    document["post_processor"] = item["post_processor"];
    if (plain->has_token(3) && plain->has_token(4)) {
      EXPECT_EQ(parse_components(document)->encode(texts[5]), item["ids"][5].get<Ids>());
    }
  }
}

// Metaspace prepends its replacement to a text's first piece, unless a normalizer has removed the
// text's first character.
TEST(Components, WhereATextBegins) {
  const Strings texts = cases()["texts"];
  for (const json& item : cases()["origins"]) {
    SCOPED_TRACE(item["normalizer"].dump());
    json document = document_with("model", item["model"]);
    document["normalizer"] = item["normalizer"];
    document["pre_tokenizer"] = item["pre_tokenizer"];
    const auto tokenizer = parse_components(document);
    for (std::size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->encode(texts[i]), item["ids"][i].get<Ids>()) << texts[i];
    }
  }
}

// A token counts as special by its decoded text.
TEST(Components, ASpecialTokenThatIsNormalizedIsNotSkipped) {
  json document = document_with("decoder", {{"type", "Fuse"}});
  document["normalizer"] = {{"type", "Lowercase"}};
  document["added_tokens"] = cases()["skipped"]["tokens"];
  EXPECT_EQ(parse_components(document)->decode(Ids{14, 15, 2}, true), cases()["skipped"]["text"]);
}

TEST(Components, ATokenThatMayBeTheLastWaits) {
  const auto tokenizer =
      parse_components(document_with("decoder", {{"type", "BPEDecoder"}, {"suffix", "a"}}));
  StreamDecoder decoder(*tokenizer);
  const std::int32_t id = tokenizer->find("▁▁a").value();
  EXPECT_EQ(decoder.push(id), "");
  EXPECT_EQ(decoder.push(id), "▁▁ ");
  EXPECT_EQ(decoder.finish(), "▁▁");
  EXPECT_EQ(decoder.push(id), "") << "as new";
  EXPECT_EQ(decoder.finish(), "▁▁");
}

const json kOneToken = json::array({"a", 0.0});

std::string components_error(const json& document) {
  try {
    (void)parse_components(document);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Components, ErrorsNameThePlace) {
  const auto unigram = [](const char* key, const json& value) {
    json model = {{"type", "Unigram"}, {"unk_id", 0}, {"vocab", json::array({kOneToken})}};
    model[key] = value;
    return components_error(document_with("model", model));
  };
  EXPECT_THAT(unigram("vocab", 3), HasSubstr("model.vocab: expected an array"));
  EXPECT_THAT(unigram("vocab", json::array({"a"})), HasSubstr("model.vocab[0]: expected an array"));
  EXPECT_THAT(unigram("vocab", json::array({json::array({"a", "b"})})),
              HasSubstr("expected a token and its score"));
  EXPECT_THAT(unigram("unk_id", 1), HasSubstr("model.unk_id: expected an id below 1, got 1"));
  const auto normalizer = [](const json& value) {
    return components_error(document_with("normalizer", value));
  };
  EXPECT_THAT(normalizer({{"type", "Strip"}}), HasSubstr("strip_left: expected true or false"));
  EXPECT_THAT(normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", "?"}}),
              HasSubstr("precompiled_charsmap: expected base64"));
  EXPECT_THAT(normalizer({{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}),
              HasSubstr("damaged"));
  EXPECT_THAT(normalizer({{"type", "Replace"}, {"pattern", {{"Regex", "("}}}, {"content", ""}}),
              HasSubstr("pattern.Regex: not a regular expression"));
  const json strip = {{"type", "Strip"}, {"content", "x"}, {"start", 1}, {"stop", 0}};
  EXPECT_THAT(components_error(document_with(
                  "decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, strip}}})),
              HasSubstr("a Strip of anything but the first space is not supported"));
}

// Without unk_id, a character that is no token is an error.
TEST(Components, UnigramWithoutUnknown) {
  const auto tokenizer = parse_components(document_with(
      "model", {{"type", "Unigram"}, {"unk_id", nullptr}, {"vocab", json::array({kOneToken})}}));
  EXPECT_EQ(tokenizer->encode("aa"), (Ids{0, 0}));
  EXPECT_THROW((void)tokenizer->encode("b"), Error);
}

}  // namespace
}  // namespace winnow
