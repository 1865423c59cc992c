// Encoding and decoding compared with other implementations.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tokenizer/stream_decoder.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;
using Ids = std::vector<std::int32_t>;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string streamed(const Tokenizer& tokenizer, const Ids& ids, bool skip_special) {
  StreamDecoder decoder(tokenizer, skip_special);
  std::string text;
  for (const std::int32_t id : ids) {
    text += decoder.push(id);
  }
  return text + decoder.finish();
}

void expect_decodes(const Tokenizer& tokenizer, const Ids& ids, bool skip_special,
                    const std::string& text) {
  EXPECT_EQ(tokenizer.decode(ids, skip_special), text);
  EXPECT_EQ(streamed(tokenizer, ids, skip_special), text);
}

void check_case(const Tokenizer& tokenizer, const nlohmann::json& item) {
  const auto decoded = item["decoded"].get<std::string>();
  if (item.contains("random")) {
    expect_decodes(tokenizer, item["random"], false, decoded);
    expect_decodes(tokenizer, item["random"], true, item["bare"]);
    return;
  }
  const auto text = item["text"].get<std::string>();
  const Ids ids = item["ids"];
  const Ids with_special = item.value("with_special", ids);
  SCOPED_TRACE("text: " + item["text"].dump());
  EXPECT_EQ(tokenizer.encode(text, {.add_special = false, .parse_special = true}), ids);
  EXPECT_EQ(tokenizer.encode(text, {.add_special = true, .parse_special = true}), with_special);
  EXPECT_EQ(tokenizer.encode(text, {.add_special = false, .parse_special = false}),
            item.value("plain", ids));
  expect_decodes(tokenizer, ids, false, decoded);
  expect_decodes(tokenizer, with_special, true, item.value("bare", decoded));
}

// The vectors were written by make_vectors.py with Hugging Face's tokenizers.
TEST(Vectors, HuggingFace) {
  int files = 0;
  for (const auto& entry : fs::directory_iterator(WINNOW_SOURCE_DIR "/tests/tokenizer/vectors")) {
    SCOPED_TRACE(entry.path().filename().string());
    const auto document = nlohmann::json::parse(read_file(entry.path()));
    const auto tokenizer = parse_tokenizer_json(document["tokenizer"].dump(), "tokenizer.json");
    for (const auto& item : document["cases"]) {
      check_case(*tokenizer, item);
    }
    ++files;
  }
  EXPECT_GE(files, 20);
}

TEST(Vectors, OwnModel) {
  const auto tokenizer = load_tokenizer(WINNOW_SOURCE_DIR "/assets/base");
  const auto cases =
      nlohmann::json::parse(read_file(WINNOW_SOURCE_DIR "/tests/tokenizer/base_vectors.json"));
  for (const auto& item : cases) {
    check_case(*tokenizer, item);
  }
}

std::vector<std::string> split_inputs(std::string_view text) {
  constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> inputs;
  for (;;) {
    const std::size_t end = text.find(kSeparator);
    inputs.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return inputs;
    }
    text.remove_prefix(end + kSeparator.size());
  }
}

std::vector<Ids> read_ids(const fs::path& path) {
  std::ifstream file(path);
  std::vector<Ids> lines;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    lines.emplace_back(std::istream_iterator<std::int32_t>(words),
                       std::istream_iterator<std::int32_t>());
  }
  return lines;
}

// Real vocabularies, which are not part of winnow's repository.
void check_shared(const std::string& model, const std::string& vectors) {
  const fs::path root = WINNOW_SOURCE_DIR "/../shared/data/tokenizers";
  if (!fs::exists(root / model)) {
    GTEST_SKIP() << root / model << " is not here";
  }
  const auto tokenizer = load_tokenizer(root / model);
  const std::vector<std::string> inputs =
      split_inputs(read_file(root / "vectors" / (vectors + ".inp")));
  const std::vector<Ids> outputs = read_ids(root / "vectors" / (vectors + ".out"));
  ASSERT_GE(inputs.size(), outputs.size());
  ASSERT_FALSE(outputs.empty());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    SCOPED_TRACE(inputs[i]);
    EXPECT_EQ(tokenizer->encode(inputs[i], {.add_special = false}), outputs[i]);
    EXPECT_EQ(tokenizer->decode(outputs[i], true), inputs[i]);
  }
}

TEST(Vectors, Llama3) {
  check_shared("llama3", "llama-bpe");
}
TEST(Vectors, Llama2) {
  check_shared("llama2", "llama-spm");
}

}  // namespace
}  // namespace winnow
