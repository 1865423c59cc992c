// Tokenizers from GGUF files, compared with the files that they were converted from.
#include "tokenizer/gguf_tokenizer.h"

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/gguf_testing.h"
#include "tiny.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

using ::testing::HasSubstr;
using testing::Ids;

class GgufTokenizerTest : public ::testing::Test {
 protected:
  gguf::File open(const gguf::GgufImage& image) {
    dir_.write("m.gguf", image.bytes());
    return gguf::File(path());
  }
  [[nodiscard]] std::filesystem::path path() const { return dir_.path() / "m.gguf"; }

  TempDir dir_;
};

constexpr std::array<const char*, 5> kTexts{"the the", " the  th\n\n e", "<|end|>the<think>x",
                                            "don't 123 \u00E9", ""};

/// The tiny tokenizer in the format of llama.cpp's converter.
gguf::GgufImage bpe_image(const nlohmann::json& tokenizer, const std::string& pre = "gpt-2") {
  const std::size_t added_tokens = tokenizer["added_tokens"].size();
  std::vector<std::string> tokens(tokenizer["model"]["vocab"].size() + added_tokens);
  std::vector<std::int32_t> types(tokens.size(), 1);
  for (const auto& [token, id] : tokenizer["model"]["vocab"].items()) {
    tokens[id.get<std::size_t>()] = token;
  }
  for (const auto& added : tokenizer["added_tokens"]) {
    tokens[added["id"].get<std::size_t>()] = added["content"];
    types[added["id"].get<std::size_t>()] = added["special"].get<bool>() ? 3 : 4;
  }
  gguf::GgufImage image;
  image.text("tokenizer.ggml.model", "gpt2");
  image.text("tokenizer.ggml.pre", pre);
  image.texts("tokenizer.ggml.tokens", tokens);
  image.numbers("tokenizer.ggml.token_type", 5, types);
  image.texts("tokenizer.ggml.merges", tokenizer["model"]["merges"]);
  image.u32("tokenizer.ggml.eos_token_id", 259);
  return image;
}

TEST_F(GgufTokenizerTest, ByteLevelBpe) {
  const nlohmann::json tiny = testing::tiny_tokenizer();
  const auto expected = parse_tokenizer_json(tiny.dump(), "tokenizer.json");
  const auto tokenizer = gguf_tokenizer(open(bpe_image(tiny)));
  for (const char* text : kTexts) {
    const Ids ids = expected->encode(text);
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids, true), expected->decode(ids, true)) << text;
  }

  gguf::GgufImage with_bos = bpe_image(tiny);
  with_bos.u32("tokenizer.ggml.bos_token_id", 259);
  with_bos.flag("tokenizer.ggml.add_bos_token", true);
  EXPECT_EQ(gguf_tokenizer(open(with_bos))->encode("the"), (Ids{259, 257}));
}

// Qwen 3.5 keeps combining marks with their letters; Qwen 2 treats them as punctuation.
TEST_F(GgufTokenizerTest, MarksOfQwen) {
  nlohmann::json tokenizer = testing::tiny_tokenizer();
  tokenizer["model"]["merges"].push_back("x \u00CC");
  tokenizer["model"]["vocab"]["x\u00CC"] = 261;
  const std::string text = "x\u0303";  // its first byte is CC
  EXPECT_EQ(gguf_tokenizer(open(bpe_image(tokenizer, "qwen2")))->encode(text).size(), 3U);
  EXPECT_EQ(gguf_tokenizer(open(bpe_image(tokenizer, "qwen35")))->encode(text).size(), 2U);
}

gguf::GgufImage sentencepiece_image() {
  const SentencePieceModel model =
      read_sentencepiece_model(testing::tiny_sentencepiece(), "tokenizer.model");
  std::vector<std::string> tokens;
  std::vector<float> scores;
  std::vector<std::int32_t> types;
  for (const auto& piece : model.pieces) {
    // Scores decrease with the ids, as in the model.
    scores.push_back(-static_cast<float>(tokens.size()));
    tokens.push_back(piece.text);
    types.push_back(static_cast<std::int32_t>(piece.kind));
  }
  gguf::GgufImage image;
  image.text("tokenizer.ggml.model", "llama");
  image.texts("tokenizer.ggml.tokens", tokens);
  image.numbers("tokenizer.ggml.scores", 6, scores);
  image.numbers("tokenizer.ggml.token_type", 5, types);
  image.u32("tokenizer.ggml.bos_token_id", 1);
  image.u32("tokenizer.ggml.eos_token_id", 2);
  image.u32("tokenizer.ggml.unknown_token_id", 0);
  return image;
}

TEST_F(GgufTokenizerTest, SentencePiece) {
  const auto tokenizer = gguf_tokenizer(open(sentencepiece_image()));
  const auto expected = parse_sentencepiece(testing::tiny_sentencepiece(), "tokenizer.model", {});
  for (const char* text : {"the the", " the", "th\u00E9", "the</s>the", ""}) {
    const Ids ids = expected->encode(text);
    EXPECT_EQ(tokenizer->encode(text), ids) << text;
    EXPECT_EQ(tokenizer->decode(ids, true), expected->decode(ids, true)) << text;
  }
}

TEST_F(GgufTokenizerTest, TheTokenizerJsonInside) {
  gguf::GgufImage image;
  image.text("tokenizer.huggingface.json", testing::tiny_tokenizer().dump());
  EXPECT_EQ(gguf_tokenizer(open(image))->encode("the the"), (Ids{257, 258}));
}

TEST_F(GgufTokenizerTest, ChatTemplates) {
  gguf::GgufImage image = bpe_image(testing::tiny_tokenizer());
  EXPECT_FALSE((open(image), ChatTemplate::load(path())).has_value());
  image.text("tokenizer.chat_template", "{{ messages[0].content }}{{ eos_token }}");
  image.text("tokenizer.chat_template.tool_use", "tools");
  (void)open(image);
  const auto chat = ChatTemplate::load(path());
  ASSERT_TRUE(chat.has_value());
  const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "hi"}}};
  EXPECT_EQ(chat->render(messages, true), "hi<|end|>");
  EXPECT_EQ(chat->render(messages, true, {{"tools", {1}}}), "tools");
}

TEST_F(GgufTokenizerTest, IsTheSameFromADirectory) {
  gguf::GgufImage bpe = bpe_image(testing::tiny_tokenizer());
  bpe.u32("tokenizer.ggml.bos_token_id", 259);
  bpe.flag("tokenizer.ggml.add_bos_token", true);
  bpe.text("tokenizer.chat_template", "{{ messages[0].content }}{{ eos_token }}");
  gguf::GgufImage sentencepiece = sentencepiece_image();
  sentencepiece.flag("tokenizer.ggml.add_eos_token", true);
  sentencepiece.text("tokenizer.chat_template", "{{ messages[0].content }}{{ eos_token }}");
  sentencepiece.text("tokenizer.chat_template.tool_use", "tools");
  gguf::GgufImage whole;
  whole.text("tokenizer.huggingface.json", testing::tiny_tokenizer().dump());
  whole.texts("tokenizer.ggml.tokens", {});
  for (const gguf::GgufImage* image : {&bpe, &sentencepiece, &whole}) {
    const TempDir written;
    const gguf::File file = open(*image);
    write_gguf_tokenizer(file, written.path());
    const auto expected = gguf_tokenizer(file);
    const auto tokenizer = load_tokenizer(written.path());
    for (const char* text : {"the the", " the", "<|end|>the", "the</s>the", "don't 123", ""}) {
      const Ids ids = expected->encode(text);
      EXPECT_EQ(tokenizer->encode(text), ids) << text;
      EXPECT_EQ(tokenizer->decode(ids, true), expected->decode(ids, true)) << text;
    }
    const nlohmann::ordered_json messages = {{{"role", "user"}, {"content", "hi"}}};
    const auto chat = ChatTemplate::load(path());
    const auto same = ChatTemplate::load(written.path());
    ASSERT_EQ(same.has_value(), chat.has_value());
    if (chat) {
      EXPECT_EQ(same->render(messages, true), chat->render(messages, true));
      EXPECT_EQ(same->render(messages, true, {{"tools", {1}}}),
                chat->render(messages, true, {{"tools", {1}}}));
    }
  }
}

TEST_F(GgufTokenizerTest, WhatIsNotReadIsNamed) {
  const auto error = [&](const gguf::GgufImage& image) {
    return error_of([&] { (void)gguf_tokenizer(open(image)); });
  };
  gguf::GgufImage model;
  model.text("tokenizer.ggml.model", "rwkv");
  EXPECT_THAT(error(model), HasSubstr("tokenizer.ggml.model \"rwkv\" is not supported"));
  gguf::GgufImage pre;
  pre.text("tokenizer.ggml.model", "gpt2");
  pre.text("tokenizer.ggml.pre", "chameleon");
  EXPECT_THAT(error(pre), HasSubstr("tokenizer.ggml.pre \"chameleon\" is not supported"));
}

}  // namespace
}  // namespace winnow
