#include "tokenizer/sentencepiece.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tiny.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/stream_decoder.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using testing::bytes_field;
using ::testing::HasSubstr;
using testing::Ids;
using testing::piece;
using testing::tiny_sentencepiece;

constexpr std::int32_t kByte = 3;  // id of "<0x00>"
constexpr std::int32_t kSpace = 259, kThe = 264, kSpaceThe = 265;

std::unique_ptr<const Tokenizer> parsed_model(SentencePieceOptions options = {}) {
  return parse_sentencepiece(tiny_sentencepiece(), "tokenizer.model", std::move(options));
}

std::string sentencepiece_error(const std::string& model) {
  try {
    parse_sentencepiece(model, "tokenizer.model", {});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SentencePiece, Encodes) {
  const auto tokenizer = parsed_model();
  EXPECT_EQ(tokenizer->encode("the the"), (Ids{1, kSpaceThe, kSpaceThe}));
  EXPECT_EQ(tokenizer->encode("the", {.add_special = false}), (Ids{kSpaceThe}));
  EXPECT_EQ(tokenizer->encode(" the", {.add_special = false}), (Ids{kSpace, kSpaceThe}));
  EXPECT_EQ(tokenizer->encode("\u00E9", {.add_special = false}),
            (Ids{kSpace, kByte + 0xC3, kByte + 0xA9}));
  EXPECT_EQ(tokenizer->encode("", {.add_special = false}), Ids{});
  EXPECT_EQ(tokenizer->encode("\xFF"), tokenizer->encode("\uFFFD"));
}

TEST(SentencePiece, BeginningAndEnd) {
  EXPECT_EQ(parsed_model({.add_bos = false})->encode("the"), (Ids{kSpaceThe}));
  EXPECT_EQ(parsed_model({.add_eos = true})->encode("the"), (Ids{1, kSpaceThe, 2}));
}

TEST(SentencePiece, SpecialTokensInText) {
  const Ids apart = {kSpaceThe, 2, kSpaceThe};
  EXPECT_EQ(parsed_model()->encode("the</s>the", {.add_special = false}), apart);
  EXPECT_EQ(parsed_model({.legacy = false})->encode("the</s>the", {.add_special = false}),
            (Ids{kSpaceThe, 2, kThe}));
  EXPECT_GT(parsed_model()->encode("</s>", {.add_special = false, .parse_special = false}).size(),
            1);
  AddedToken pad{.id = 266, .content = "<pad>", .special = true};
  const auto tokenizer = parsed_model({.added = {pad}});
  EXPECT_EQ(tokenizer->encode("<pad>"), (Ids{1, 266}));
  EXPECT_EQ(tokenizer->vocab_size(), 267);
  EXPECT_EQ(tokenizer->decode(Ids{266}, false), "<pad>");
  EXPECT_EQ(tokenizer->decode(Ids{266}, true), "");
}

TEST(SentencePiece, DropsOnlyTheFirstSpace) {
  const auto tokenizer = parsed_model();
  EXPECT_EQ(tokenizer->decode(Ids{1, kSpaceThe, kSpaceThe}, true), "the the");
  EXPECT_EQ(tokenizer->decode(Ids{kSpace, kSpaceThe}, true), " the");
  EXPECT_EQ(tokenizer->decode(Ids{1, kSpaceThe}, false), "<s> the");
  EXPECT_EQ(tokenizer->decode(Ids{kByte + ' ', kThe}, true), " the");
  EXPECT_EQ(tokenizer->decode(Ids{0, kThe}, true), " \u2047 the");
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(decoder.push(1), "");
  EXPECT_EQ(decoder.push(kSpaceThe), "the");
  EXPECT_EQ(decoder.push(kSpaceThe), " the");
  EXPECT_EQ(decoder.finish(), "");
  EXPECT_EQ(decoder.push(kSpaceThe), "the");  // like a new decoder
}

TEST(SentencePiece, EachMalformedByteIsReplaced) {
  const auto tokenizer = parsed_model();
  EXPECT_EQ(tokenizer->decode(Ids{kByte + 0xE2, kByte + 0x82}, true), "\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->decode(Ids{kByte + 0xE2, kByte + 0x82, kThe}, true), "\uFFFD\uFFFDthe");
  EXPECT_EQ(tokenizer->decode(Ids{kByte + 0xC3, kByte + 0xA9}, true), "\u00E9");
}

TEST(SentencePiece, IdsThatAreNoTokens) {
  const auto tokenizer = parsed_model();
  EXPECT_THROW((void)tokenizer->decode(Ids{-1}, true), Error);
  EXPECT_THROW((void)tokenizer->decode(Ids{266}, true), Error);
  EXPECT_FALSE(tokenizer->has_token(-1));
  EXPECT_FALSE(tokenizer->has_token(266));
  EXPECT_TRUE(tokenizer->has_token(265));
}

TEST(SentencePiece, LongTextsAreCutWhereNothingChanges) {
  const auto tokenizer = parsed_model();
  Ids expected;
  std::string text;
  for (int i = 0; i < 5000; ++i) {
    text += i == 0 ? "the" : " the";
    expected.push_back(kSpaceThe);
    if (i % 7 == 0) {
      text += "  ";
      expected.insert(expected.end(), {kSpace, kSpace});
    }
  }
  EXPECT_EQ(tokenizer->encode(text, {.add_special = false}), expected);
}

TEST(SentencePiece, DamagedModels) {
  const std::string good = tiny_sentencepiece();
  EXPECT_THAT(sentencepiece_error(""), HasSubstr("no pieces"));
  EXPECT_THAT(sentencepiece_error("not a model"), HasSubstr("tokenizer.model: "));
  EXPECT_THAT(sentencepiece_error(good.substr(0, good.size() / 2)), HasSubstr("cut short"));
  EXPECT_THAT(sentencepiece_error(good + piece("", 0, 1)), HasSubstr("piece 266: expected a text"));
  EXPECT_THAT(sentencepiece_error(good + piece("\xFF", 0, 1)),
              HasSubstr("expected a text in UTF-8"));
  EXPECT_THAT(sentencepiece_error(good + piece("x", 0, 9)), HasSubstr("type 9"));
  EXPECT_THAT(sentencepiece_error(good + piece("x", 0, 6)), HasSubstr("of type byte"));
  EXPECT_THAT(sentencepiece_error(good + piece("x", std::numeric_limits<float>::infinity(), 1)),
              HasSubstr("finite"));
  EXPECT_THAT(sentencepiece_error(good + piece("the", 0, 1)),
              HasSubstr("not a SentencePiece model"));
  EXPECT_THAT(sentencepiece_error(good + bytes_field(5, bytes_field(2, "xxxx"))),
              HasSubstr("not supported"));
}

TEST(SentencePiece, CharacterMapsThatLeadOutsideThemselves) {
  const auto map = [](const std::vector<std::uint32_t>& units, std::string_view strings) {
    std::string out;
    const auto put = [&](std::uint32_t unit) {
      for (int i = 0; i < 4; ++i) {
        out += static_cast<char>(unit >> 8 * i);
      }
    };
    put(static_cast<std::uint32_t>(4 * units.size()));
    for (const std::uint32_t unit : units) {
      put(unit);
    }
    return out.append(strings);
  };
  EXPECT_THROW(check_charsmap("abc", "x"), Error);
  EXPECT_THROW(check_charsmap(map({1}, std::string(1, '\0')), "x"), Error);  // child out of range
  EXPECT_THROW(check_charsmap(map({0x80000000U}, "x"), "x"), Error);         // not terminated
  EXPECT_THROW(check_charsmap(map({0x80000000U}, std::string(1, '\0')), "x"), Error);  // no root
  std::vector<std::uint32_t> units(256, 0x80000000U);
  units[0] = 0;
  EXPECT_NO_THROW(check_charsmap(map(units, std::string(1, '\0')), "x"));
  EXPECT_THAT(sentencepiece_error(tiny_sentencepiece(bytes_field(2, "damaged map"))),
              HasSubstr("normalizer_spec: the character map is damaged"));
}

RC_GTEST_PROP(SentencePiece, StreamingGivesWhatDecodingGives, ()) {
  static const auto tokenizer = parsed_model();
  const Ids ids = *rc::gen::container<Ids>(rc::gen::inRange<std::int32_t>(0, 266));
  StreamDecoder decoder(*tokenizer);
  std::string text;
  for (const std::int32_t id : ids) {
    text += decoder.push(id);
    RC_ASSERT(is_valid_utf8(text));
  }
  RC_ASSERT(text + decoder.finish() == tokenizer->decode(ids, true));
}

RC_GTEST_PROP(SentencePiece, DecodeUndoesEncode, (const std::string& bytes)) {
  static const auto tokenizer = parsed_model();
  const std::string text = to_valid_utf8(bytes);
  RC_PRE(text.find("\u2581") == std::string::npos);
  const Tokenizer::EncodeOptions options{.parse_special = false};
  RC_ASSERT(tokenizer->decode(tokenizer->encode(text, options), true) == text);
}

}  // namespace
}  // namespace winnow
