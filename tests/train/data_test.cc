// From lines of text to packed batches.
#include <gtest/gtest.h>
#include <zstd.h>

#include "checkpoint/checkpoint_testing.h"
#include "checkpoint/gguf_testing.h"
#include "train/line_reader.h"
#include "train/packing.h"
#include "train/tokenize.h"

namespace winnow::train {
namespace {

using nlohmann::json;

std::filesystem::path model() {
  return std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/base";
}

std::string compressed(const std::string& text) {
  std::string result(ZSTD_compressBound(text.size()), '\0');
  result.resize(ZSTD_compress(result.data(), result.size(), text.data(), text.size(), 3));
  return result;
}

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  LineReader reader(path);
  std::vector<std::string> lines;
  for (std::string line; reader.next(line);) {
    lines.push_back(line);
    EXPECT_EQ(reader.number(), static_cast<std::int64_t>(lines.size()));
  }
  return lines;
}

TEST(LineReader, ReadsPlainAndCompressed) {
  const TempDir dir;
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 3000; ++i) {  // longer than any buffer, with long and empty lines
    expected.push_back(std::string(static_cast<std::size_t>(i * 7 % 500), 'x') + std::to_string(i));
    text += expected.back() + (i % 3 == 0 ? "\r\n" : "\n");
  }
  expected.emplace_back("the last, without an end");
  text += expected.back();
  dir.write("plain", text);
  dir.write("one", compressed(text));
  dir.write("two", compressed(text.substr(0, 5000)) + compressed(text.substr(5000)));
  EXPECT_EQ(lines_of(dir.path() / "plain"), expected);
  EXPECT_EQ(lines_of(dir.path() / "one"), expected);
  EXPECT_EQ(lines_of(dir.path() / "two"), expected);
}

TEST(LineReader, NamesWhatItCannotRead) {
  const TempDir dir;
  const std::string whole = compressed(std::string(100'000, 'a') + "b");
  dir.write("cut", whole.substr(0, whole.size() - 3));
  dir.write("broken", whole.substr(0, 8) + "garbage garbage garbage garbage");
  dir.write("empty", "");
  EXPECT_NE(error_of([&] { lines_of(dir.path() / "cut"); }).find("cut: ends inside"),
            std::string::npos);
  EXPECT_NE(error_of([&] { lines_of(dir.path() / "broken"); }).find("broken: not valid zstd"),
            std::string::npos);
  EXPECT_NE(error_of([&] { lines_of(dir.path() / "none"); }).find("none: cannot open"),
            std::string::npos);
  EXPECT_TRUE(lines_of(dir.path() / "empty").empty());
}

class Encoding : public ::testing::Test {
 protected:
  [[nodiscard]] Document encode(const json& line, bool mask) const {
    return DocumentEncoder(model(), model::read_spec(model()), mask).encode(line.dump());
  }
  /// The tokens with a loss, as text.
  [[nodiscard]] std::string trained_text(const Document& document) const {
    std::vector<std::int32_t> tokens;
    for (std::size_t i = 0; i < document.tokens.size(); ++i) {
      if (document.weights.empty() || document.weights[i] != 0.0F) {
        tokens.push_back(document.tokens[i]);
      }
    }
    return tokenizer_->decode(tokens, false);
  }
  [[nodiscard]] std::string text(const Document& document) const {
    return tokenizer_->decode(document.tokens, false);
  }

 private:
  std::unique_ptr<const Tokenizer> tokenizer_ = load_tokenizer(model());
};

TEST_F(Encoding, OfText) {
  const Document document = encode({{"text", "A <|user|> is no token here."}}, true);
  EXPECT_EQ(text(document), "A <|user|> is no token here.<|end_of_text|>");
  EXPECT_EQ(trained_text(document), text(document));
  EXPECT_GT(document.tokens.size(), 8U);  // <|user|> was spelled out
}

TEST_F(Encoding, OfPrompts) {
  const json line{{"prompt", "2 + 2 ="}, {"completion", " 4"}};
  EXPECT_EQ(text(encode(line, true)), "2 + 2 = 4<|end_of_text|>");
  EXPECT_EQ(trained_text(encode(line, true)), " 4<|end_of_text|>");
  EXPECT_TRUE(encode(line, false).weights.empty());
}

TEST_F(Encoding, NamesKeysWithoutEffect) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(encode({{"text", "a"}}, false).ignored, Names{});
  EXPECT_EQ(encode({{"id", 1}, {"text", "a"}, {"messages", "b"}}, false).ignored,
            (Names{"id", "messages"}));
  EXPECT_EQ(encode({{"prompt", "a"}, {"completion", "b"}, {"wieght", 2}}, false).ignored,
            Names{"wieght"});
  EXPECT_EQ(encode({{"parts", {{{"text", "a"}}}}, {"source", "b"}}, false).ignored,
            Names{"source"});
  const json chat{{{"role", "user"}, {"content", "a"}}};
  EXPECT_EQ(encode({{"messages", chat}, {"tools", json::array()}}, false).ignored, Names{"tools"});
}

TEST_F(Encoding, OfWeighedParts) {
  const json line{{"parts",
                   {{{"text", "Some text. "}},
                    {{"text", "<|user|>What?"}, {"weight", 0.25}},
                    {{"text", "<|assistant|>That."}, {"weight", 8}}}}};
  const Document document = encode(line, false);
  EXPECT_EQ(text(document), "Some text. <|user|>What?<|assistant|>That.");
  ASSERT_EQ(document.weights.size(), document.tokens.size());
  std::map<float, std::string> by_weight;
  for (std::size_t i = 0; i < document.tokens.size(); ++i) {
    by_weight[document.weights[i]] += text({{document.tokens[i]}, {}});
  }
  EXPECT_EQ(by_weight[1.0F], "Some text. ");
  EXPECT_EQ(by_weight[0.25F], "<|user|>What?");
  EXPECT_EQ(by_weight[8.0F], "<|assistant|>That.");
}

TEST_F(Encoding, OfChats) {
  const json line{{"messages",
                   {{{"role", "user"}, {"content", "Hello"}},
                    {{"role", "assistant"}, {"content", "Hi"}},
                    {{"role", "user"}, {"content", "Bye"}},
                    {{"role", "assistant"}, {"content", "Farewell"}}}}};
  const Document document = encode(line, true);
  EXPECT_EQ(text(document),
            "<|user|>Hello<|assistant|>Hi<|end_of_text|><|user|>Bye<|assistant|>Farewell"
            "<|end_of_text|>");
  EXPECT_EQ(trained_text(document), "Hi<|end_of_text|>Farewell<|end_of_text|>");
  EXPECT_EQ(text(encode(line, false)), text(document));
}

TEST_F(Encoding, SaysWhatIsWrong) {
  const DocumentEncoder encoder(model(), model::read_spec(model()), false);
  const auto complaint = [&](const std::string& line) {
    return error_of([&] { static_cast<void>(encoder.encode(line)); });
  };
  EXPECT_TRUE(complaint("{\"text\": ").starts_with("not JSON, expected {\"text\": \"...\"}: "));
  EXPECT_TRUE(complaint("Once upon a time").ends_with("a line of a file of plain text"));
  EXPECT_EQ(complaint("[1]"), "not a JSON object, expected {\"text\": \"...\"}");
  EXPECT_EQ(complaint("{\"text\": 3}"), "text is not a text");
  EXPECT_TRUE(complaint("{\"prompt\": \"a\"}").starts_with("neither \"text\""));
  EXPECT_EQ(complaint("{\"messages\": []}"), "\"messages\" is not a list of messages");
  EXPECT_TRUE(complaint(R"({"messages": [{"role": "usr", "content": "a"}]})")
                  .starts_with("messages[0].role is \"usr\"; expected system, "));
  EXPECT_EQ(complaint(R"({"messages": [{"role": "user"}]})"),
            "a message has no role or no content");
  EXPECT_EQ(complaint("{\"parts\": {}}"), "\"parts\" is not a list of texts");
  EXPECT_EQ(complaint("{\"parts\": [{\"weight\": 1}]}"), "a part has no text");
  EXPECT_EQ(complaint("{\"parts\": [{\"text\": \"a\", \"wieght\": 8}]}"),
            "a part has \"wieght\", expected \"text\" and \"weight\"");
  EXPECT_EQ(complaint("{\"parts\": [{\"text\": \"a\", \"weight\": -1}]}"),
            "a part's weight is not a number from 0 to 1e6");
}

TokenizeOptions options_for(const TempDir& dir, const std::vector<std::string>& files) {
  TokenizeOptions options;
  for (const std::string& file : files) {
    options.files.push_back(dir.path() / file);
  }
  options.model = model();
  return options;
}

TEST(Tokenize, KeepsTheOrderOfDocuments) {
  const TempDir dir;
  std::string text;
  std::vector<std::vector<std::int32_t>> expected;
  const DocumentEncoder encoder(model(), model::read_spec(model()), false);
  for (int i = 0; i < 500; ++i) {
    const std::string line = json{{"text", "Document number " + std::to_string(i)}}.dump();
    expected.push_back(encoder.encode(line).tokens);
    text += line + "\n";
    if (i == 250) {
      dir.write("a.jsonl", text);
      text.clear();
    }
  }
  dir.write("b.jsonl.zst", compressed(text));
  const auto options = options_for(dir, {"a.jsonl", "b.jsonl.zst"});
  const auto result = tokenize_files(options, model::read_spec(model()), dir.path() / "shards");
  EXPECT_EQ(result.documents, 500);
  EXPECT_EQ(result.malformed, 0);
  const Shards shards(dir.path() / "shards");
  ASSERT_EQ(shards.documents(), 500U);
  EXPECT_EQ(shards.tokens(), result.tokens);
  for (std::size_t i = 0; i < 500; ++i) {
    EXPECT_TRUE(std::ranges::equal(shards.document(i).tokens, expected[i])) << i;
  }
  EXPECT_TRUE(Shards::hold(dir.path() / "shards", data_origin(options)));
  dir.write("a.jsonl", "{\"text\": \"another\"}\n");
  EXPECT_FALSE(Shards::hold(dir.path() / "shards", data_origin(options)));
}

// A GGUF file contains its tokenizer, while a directory has separate files for it.
TEST(DataOrigin, KnowsTheTokenizerOfAGgufFile) {
  const TempDir dir;
  TokenizeOptions options;
  options.model = dir.path() / "m.gguf";
  const auto origin = [&](const std::string& token, std::uint32_t layers) {
    gguf::GgufImage image;
    image.u32("llama.block_count", layers);
    image.texts("tokenizer.ggml.tokens", {token});
    dir.write("m.gguf", image.bytes());
    return data_origin(options);
  };
  EXPECT_EQ(origin("a", 2), origin("a", 3));
  EXPECT_NE(origin("a", 2), origin("b", 2));
}

TEST(Tokenize, CountsMalformedLinesAndStopsWhenTheyAreMany) {
  const TempDir dir;
  std::string text;
  for (int i = 1; i <= 100; ++i) {
    text += i == 42 ? "{\"text\": \n" : "{\"text\": \"fine\"}\n\n";
  }
  dir.write("data", text);
  auto options = options_for(dir, {"data"});
  const auto result = tokenize_files(options, model::read_spec(model()), dir.path() / "shards");
  EXPECT_EQ(result.documents, 99);
  EXPECT_EQ(result.malformed, 1);
  ASSERT_EQ(result.complaints.size(), 1U);
  EXPECT_NE(result.complaints[0].find("data:83: not JSON"), std::string::npos)
      << result.complaints[0];
  options.max_malformed = 0.005;
  const std::string error =
      error_of([&] { tokenize_files(options, model::read_spec(model()), dir.path() / "other"); });
  EXPECT_NE(error.find("1 of 100 lines are malformed"), std::string::npos) << error;
  EXPECT_NE(error.find("data:83"), std::string::npos) << error;
}

// Documents of known tokens: document i is i * 100, i * 100 + 1, ...
class Packing : public ::testing::Test {
 protected:
  Shards write(const std::vector<std::size_t>& lengths, bool weighed = false) const {
    ShardWriter writer(dir_.path() / "shards");
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      Document document;
      for (std::size_t t = 0; t < lengths[i]; ++t) {
        document.tokens.push_back(static_cast<std::int32_t>(i * 100 + t));
        if (weighed && i % 2 == 1) {
          document.weights.push_back(static_cast<float>(t % 4));
        }
      }
      writer.add(document);
    }
    writer.finish({});
    return Shards(dir_.path() / "shards");
  }

 private:
  TempDir dir_;
};

TEST_F(Packing, GivesEveryTokenOncePerEpoch) {
  const Shards shards = write({3, 50, 7, 1, 20, 100});
  PackedReader reader(shards, 16, std::nullopt, 5);
  std::map<std::int32_t, int> seen;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    while (reader.position().epoch == epoch) {
      const Batch batch = reader.next(1);
      EXPECT_EQ(batch.size(), 16U);
      for (std::size_t t = 0; t < batch.size(); ++t) {
        // A document's last token predicts nothing either, so padding is recognised by its weight
        // and the next token.
        const bool padding = batch.tokens[t] == 0 && batch.weights[t] == 0.0F;
        seen[batch.tokens[t]] += padding ? 0 : 1;
      }
    }
    EXPECT_EQ(seen.size(), 181U);
    for (const auto& [token, count] : seen) {
      EXPECT_EQ(count, epoch + 1) << token;
    }
  }
}

TEST_F(Packing, PiecesStayWholeAndFillTheirSequences) {
  // Cut at 16 tokens: 3, 16 + 16 + 16 + 2, 7, 1, 4, 9: 74 tokens, which five sequences can hold.
  const Shards shards = write({3, 50, 7, 1, 4, 9});
  PackedReader reader(shards, 16, std::nullopt, 5);
  for (int epoch = 0; epoch < 4; ++epoch) {
    EXPECT_EQ(reader.sequences(), 5U);
    const Batch batch = reader.next(5);
    std::map<std::int32_t, int> pieces;  // tokens of each document's pieces
    for (std::size_t t = 0; t < batch.size(); ++t) {
      pieces[batch.first_key[t]]++;
    }
    std::multiset<int> sizes;
    for (const auto& [first, count] : pieces) {
      EXPECT_EQ(first / 16, (first + count - 1) / 16);
      sizes.insert(count);
    }
    EXPECT_TRUE(std::ranges::includes(sizes, std::multiset{1, 2, 3, 4, 7, 9, 16, 16, 16}));
  }
}

TEST_F(Packing, TargetsAreWhatFollowsInTheDocument) {
  constexpr std::int32_t kBegin = 9999;
  const Shards shards = write({3, 50, 7, 20});
  for (const bool begins : {false, true}) {
    PackedReader reader(shards, 16, begins ? std::optional(kBegin) : std::nullopt, 5);
    for (int i = 0; i < 20; ++i) {
      const Batch batch = reader.next(3);
      ASSERT_EQ(batch.size(), 48U);
      for (std::size_t t = 0; t < batch.size(); ++t) {
        const bool first = batch.first_key[t] == static_cast<std::int32_t>(t);
        EXPECT_TRUE(t % 16 != 0 || first);  // no document crosses the end of a sequence
        if (batch.weights[t] > 0.0F) {
          EXPECT_EQ(batch.tokens[t] == kBegin, begins && first);
          if (batch.tokens[t] != kBegin) {
            EXPECT_EQ(batch.targets[t], batch.tokens[t] + 1);
          }
          if (!first && batch.tokens[t - 1] != kBegin) {
            EXPECT_EQ(batch.tokens[t], batch.tokens[t - 1] + 1);
          }
        } else {  // a document's last token, or padding
          const std::array<std::int32_t, 6> ends{2, 149, 206, 319, 0, kBegin};
          EXPECT_EQ(std::ranges::count(ends, batch.tokens[t]), 1);
        }
      }
    }
  }
}

TEST_F(Packing, TokensWeighWhatTheirDocumentSays) {
  const Shards shards = write({8, 8, 8}, true);
  PackedReader reader(shards, 8, std::nullopt, 5);
  const Batch batch = reader.next(3);
  for (std::size_t t = 0; t < batch.size(); ++t) {
    const bool last = batch.tokens[t] % 100 == 7;
    const bool weighed = batch.tokens[t] / 100 == 1;
    EXPECT_EQ(batch.weights[t], last      ? 0.0F
                                : weighed ? static_cast<float>(batch.targets[t] % 4)
                                          : 1.0F);
  }
}

TEST_F(Packing, GoesOnFromAnyPosition) {
  const Shards shards = write({3, 50, 7, 20});
  PackedReader reader(shards, 16, 9999, 5);
  for (int i = 0; i < 30; ++i) {
    const PackingPosition position = reader.position();
    const Batch expected = reader.next(2);
    PackedReader other(shards, 16, 9999, 5);
    other.seek(position);
    const Batch actual = other.next(2);
    EXPECT_EQ(actual.tokens, expected.tokens);
    EXPECT_EQ(actual.first_key, expected.first_key);
    EXPECT_EQ(other.position(), reader.position());
  }
  EXPECT_GT(reader.position().epoch, 1);
  EXPECT_NE(error_of([&] { reader.seek({0, 100}); }).find("no sequence 100"), std::string::npos);
}

TEST_F(Packing, TheSeedAndTheEpochDecideTheOrder) {
  const Shards shards = write({10, 10, 10, 10, 10, 10, 10, 10});
  const auto epoch = [&](std::uint64_t seed, std::int64_t number) {
    PackedReader reader(shards, 10, std::nullopt, seed);
    reader.seek({number, 0});
    return reader.next(8).tokens;
  };
  EXPECT_EQ(epoch(1, 0), epoch(1, 0));
  EXPECT_NE(epoch(1, 0), epoch(2, 0));
  EXPECT_NE(epoch(1, 0), epoch(1, 1));
}

}  // namespace
}  // namespace winnow::train
