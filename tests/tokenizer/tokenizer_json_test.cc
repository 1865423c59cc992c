#include "tokenizer/tokenizer_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <chrono>

#include "tiny.h"
#include "tokenizer/json_field.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;
using testing::Ids;
using testing::tiny_tokenizer;

std::unique_ptr<const Tokenizer> parse(const nlohmann::json& document) {
  return parse_tokenizer_json(document.dump(), "tokenizer.json");
}

std::string error_of(const nlohmann::json& document) {
  try {
    parse(document);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string stream(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string delta = decoder.push(id);
    EXPECT_TRUE(is_valid_utf8(delta));
    text += delta;
  }
  return text + decoder.finish();
}

TEST(TokenizerJson, FindsTokens) {
  const auto tokenizer = parse(tiny_tokenizer());
  EXPECT_EQ(tokenizer->encode("the the"), (Ids{257, 258}));
  EXPECT_EQ(tokenizer->encode("thx<|end|>"), (Ids{256, 'x', 259}));
  EXPECT_EQ(tokenizer->encode("<|end|>", {.parse_special = false}).size(), 7);
  EXPECT_EQ(tokenizer->encode("<think>", {.parse_special = false}), (Ids{260}));
  EXPECT_EQ(tokenizer->vocab_size(), 261);
  EXPECT_EQ(tokenizer->find("<|end|>"), 259);
  EXPECT_EQ(tokenizer->find("the"), 257);
  EXPECT_EQ(tokenizer->find("nothing"), std::nullopt);
  EXPECT_TRUE(tokenizer->is_special(259));
  EXPECT_FALSE(tokenizer->is_special(260));
  EXPECT_FALSE(tokenizer->is_special(-1));
}

TEST(TokenizerJson, TokenBytes) {
  const auto tokenizer = parse(tiny_tokenizer());
  EXPECT_EQ(tokenizer->token_bytes(0xE2, true), "\xE2");
  EXPECT_EQ(tokenizer->token_bytes(258, true), " the");
  EXPECT_EQ(tokenizer->token_bytes(259, true), "");
  EXPECT_EQ(tokenizer->token_bytes(259, false), "<|end|>");
}

TEST(TokenizerJson, IdsThatAreNoTokens) {
  const auto tokenizer = parse(tiny_tokenizer());
  for (const std::int32_t id : {-1, 261, INT32_MAX, INT32_MIN}) {
    EXPECT_THROW((void)tokenizer->token_bytes(id, true), Error) << id;
    EXPECT_THROW((void)tokenizer->decode(Ids{257, id}, true), Error) << id;
    EXPECT_FALSE(tokenizer->has_token(id)) << id;
    EXPECT_EQ(StreamDecoder(*tokenizer).push_chosen(id), "") << id;
  }
  EXPECT_TRUE(tokenizer->has_token(260));
  EXPECT_EQ(StreamDecoder(*tokenizer).push_chosen(258), " the");
}

TEST(TokenizerJson, MalformedTextCountsAsReplacementCharacters) {
  const auto tokenizer = parse(tiny_tokenizer());
  EXPECT_EQ(tokenizer->encode("a\xE2\x82|\xFF"), tokenizer->encode("a\uFFFD|\uFFFD"));
}

TEST(TokenizerJson, MergesMayBePairs) {
  auto document = tiny_tokenizer();
  document["model"]["merges"] =
      nlohmann::json::parse(R"([["t", "h"], ["th", "e"], ["\u0120", "the"]])");
  EXPECT_EQ(parse(document)->encode("the the"), (Ids{257, 258}));
}

TEST(TokenizerJson, IgnoreMerges) {
  auto document = tiny_tokenizer();
  document["model"]["merges"] = nlohmann::json::array();
  EXPECT_EQ(parse(document)->encode("the"), (Ids{'t', 'h', 'e'}));
  document["model"]["ignore_merges"] = true;
  EXPECT_EQ(parse(document)->encode("the"), (Ids{257}));
}

TEST(TokenizerJson, ErrorsNameThePlace) {
  const auto with = [](const char* pointer, const nlohmann::json& value) {
    auto document = tiny_tokenizer();
    document[nlohmann::json::json_pointer(pointer)] = value;
    return error_of(document);
  };
  EXPECT_THAT(with("/model/type", "CharLevel"),
              HasSubstr("tokenizer.json: model: model \"CharLevel\""));
  EXPECT_THAT(with("/model/vocab", 3), HasSubstr("model.vocab: expected an object"));
  EXPECT_THAT(with("/model/vocab/the", 256), HasSubstr("both have id 256"));
  EXPECT_THAT(with("/model/vocab/the", -1), HasSubstr("expected a token id"));
  EXPECT_THAT(with("/model/vocab/the", 1U << 31), HasSubstr("expected a token id"));
  EXPECT_THAT(with("/model/merges", nullptr), HasSubstr("model.merges: expected an array"));
  EXPECT_THAT(with("/model/merges/1", "the"), HasSubstr("one space between"));
  EXPECT_THAT(with("/model/merges/1", "t x"), HasSubstr("merges[1]: \"tx\" is not in model.vocab"));
  EXPECT_THAT(with("/model/dropout", 0.1), HasSubstr("dropout is not supported"));
  EXPECT_THAT(with("/normalizer", {{"type", "Bert"}}),
              HasSubstr("normalizer: normalizer \"Bert\""));
  EXPECT_THAT(with("/pre_tokenizer", {{"type", "Bert"}}), HasSubstr("pre_tokenizer \"Bert\""));
  EXPECT_THAT(with("/pre_tokenizer", 5), HasSubstr("pre_tokenizer: expected an object"));
  EXPECT_THAT(with("/decoder", {{"type", "CTC2"}}), HasSubstr("decoder \"CTC2\""));
  EXPECT_THAT(with("/post_processor", {{"type", "Bert"}}), HasSubstr("post_processor \"Bert\""));
  EXPECT_THAT(with("/added_tokens/0/id", "7"), HasSubstr("added_tokens[0].id: expected a token"));
  EXPECT_THAT(with("/added_tokens/0/special", "yes"), HasSubstr("expected true or false"));
}

TEST(TokenizerJson, ErrorsOfRegularExpressions) {
  const auto with = [](const std::string& regex) {
    auto document = tiny_tokenizer();
    document["pre_tokenizer"] = {
        {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", regex}}}};
    return error_of(document);
  };
  EXPECT_THAT(with("(a"), HasSubstr("pre_tokenizer.pattern.Regex: not a regular expression"));
  EXPECT_THAT(with("[a"), HasSubstr("not a regular expression"));
  EXPECT_THAT(with("\\p{Nothing}"), HasSubstr("not a regular expression"));
  EXPECT_THAT(with("\\"), HasSubstr("not a regular expression"));
}

// A missing unknown token is an error only for texts that need it.
TEST(TokenizerJson, AnUnknownTokenThatIsMissing) {
  auto document = tiny_tokenizer();
  document["model"]["unk_token"] = "?!";
  document["pre_tokenizer"] = nullptr;
  const auto tokenizer = parse(document);
  EXPECT_EQ(tokenizer->encode("the"), (Ids{257}));
  EXPECT_THROW((void)tokenizer->encode("\u4e16"), Error);
}

// As in Hugging Face's tokenizers: the id in the vocabulary, else the next one, not the file's.
TEST(TokenizerJson, IdsOfAddedTokens) {
  const auto ids = [](const nlohmann::json& added, const std::string& text) {
    auto document = tiny_tokenizer();
    document["added_tokens"] = added;
    return parse(document)->encode(text);
  };
  EXPECT_EQ(ids({{{"id", 999}, {"content", "the"}}}, "thethe"), (Ids{257, 257}));
  EXPECT_EQ(ids({{{"id", 7}, {"content", "<a>"}}, {{"id", 3}, {"content", "<b>"}}}, "<b><a>"),
            (Ids{260, 259}));
  EXPECT_EQ(ids({{{"id", 999}, {"content", "<a>"}},
                 {{"id", 999}, {"content", ""}},
                 {{"id", 1000}, {"content", "<a>"}, {"rstrip", true}},
                 {{"id", 5}, {"content", "th"}},
                 {{"id", 5}, {"content", "<b>"}}},
                "<a> th<b>"),
            (Ids{259, 256, 260}));
}

TEST(TokenizerJson, EndlessBacktrackingIsAnError) {
  auto document = tiny_tokenizer();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"behavior", "Isolated"}, {"pattern", {{"Regex", "(a*)*b"}}}};
  const auto tokenizer = parse(document);
  EXPECT_THROW((void)tokenizer->encode(std::string(40, 'a') + "cb"), Error);
}

TEST(TokenizerJson, DamagedJson) {
  EXPECT_THROW(parse_tokenizer_json("", "x"), Error);
  EXPECT_THROW(parse_tokenizer_json("{\"model\":", "x"), Error);
  EXPECT_THROW(parse_tokenizer_json("[]", "x"), Error);
  EXPECT_THROW(parse_tokenizer_json("\"\xFF\"", "x"), Error);
  EXPECT_THROW(parse_tokenizer_json(std::string(100000, '['), "x"), Error);
  nlohmann::json nested = {{"type", "ByteLevel"}};
  for (int i = 0; i < 40; ++i) {
    nested = {{"type", "Sequence"}, {"pretokenizers", {nested}}};
  }
  auto document = tiny_tokenizer();
  document["pre_tokenizer"] = nested;
  EXPECT_THAT(error_of(document), HasSubstr("nested too deep"));
}

// A quadratic algorithm would take minutes here.
TEST(TokenizerJson, LongRunsTakeLittleTime) {
  const auto tokenizer = parse(tiny_tokenizer());
  const auto begin = std::chrono::steady_clock::now();
  for (const char* unit : {"the", "t", " ", "\n", "1", "\u0301\u0323", "<|", "\xFF"}) {
    std::string text;
    while (text.size() < 300'000) {
      text += unit;
    }
    EXPECT_FALSE(tokenizer->encode(text).empty());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));
}

// Any text: code points of every UTF-8 length, and the ASCII characters of tokens.
rc::Gen<std::string> texts() {
  const auto character = rc::gen::map(
      rc::gen::oneOf(rc::gen::inRange<std::uint32_t>(0, 0xD800),
                     rc::gen::inRange<std::uint32_t>(0xE000, 0x110000),
                     rc::gen::inRange<std::uint32_t>(0, 0x80),
                     rc::gen::elementOf(std::vector<std::uint32_t>{'t', 'h', 'e', ' ', '<', '\n'})),
      [](std::uint32_t code) {
        std::string out;
        append_utf8(code, out);
        return out;
      });
  return rc::gen::map(rc::gen::container<std::vector<std::string>>(character),
                      [](const std::vector<std::string>& characters) {
                        std::string out;
                        for (const std::string& c : characters) {
                          out += c;
                        }
                        return out;
                      });
}

RC_GTEST_PROP(TokenizerJson, DecodeUndoesEncode, ()) {
  static const auto tokenizer = parse(tiny_tokenizer());
  const std::string text = *texts();
  const Ids ids = tokenizer->encode(text);
  RC_ASSERT(tokenizer->decode(ids, false) == text);
  RC_ASSERT(stream(*tokenizer, ids, false) == text);
}

RC_GTEST_PROP(TokenizerJson, StreamingGivesWhatDecodingGives, ()) {
  static const auto tokenizer = parse(tiny_tokenizer());
  const auto id = rc::gen::oneOf(rc::gen::inRange<std::int32_t>(0, 259),
                                 rc::gen::inRange<std::int32_t>(0x80, 0x100),
                                 rc::gen::inRange<std::int32_t>(259, 261));
  const Ids ids = *rc::gen::container<Ids>(id);
  std::string bytes;
  for (const std::int32_t i : ids) {
    bytes += tokenizer->token_bytes(i, true);
  }
  RC_ASSERT(tokenizer->decode(ids, true) == to_valid_utf8(bytes));
  RC_ASSERT(stream(*tokenizer, ids, true) == to_valid_utf8(bytes));
}

RC_GTEST_PROP(TokenizerJson, AnyBytesEncodeAsTheirValidForm, (const std::string& bytes)) {
  static const auto tokenizer = parse(tiny_tokenizer());
  RC_ASSERT(tokenizer->encode(bytes) == tokenizer->encode(to_valid_utf8(bytes)));
}

}  // namespace
}  // namespace winnow
