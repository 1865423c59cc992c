#include "tokenizer/gguf_tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/sentencepiece_write.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

using nlohmann::json;

constexpr const char* kPrefix = "tokenizer.ggml.";

/// llama.cpp's token types.
enum TokenType : int { kControl = 3, kUserDefined = 4, kUnused = 5 };

/// The file's metadata about tokens.
class TokenData {
 public:
  explicit TokenData(const gguf::File& file)
      : file_(file), tokens_(list("tokens")), types_(list("token_type")) {
    require(std::ranges::all_of(tokens_, [](const json& token) { return token.is_string(); }),
            "{}: {}tokens: expected strings", where(), kPrefix);
    require(types_.empty() || types_.size() == tokens_.size(), "{}: {} types for {} tokens",
            where(), types_.size(), tokens_.size());
  }

  [[nodiscard]] std::string where() const { return file_.path().string(); }
  [[nodiscard]] std::size_t size() const { return tokens_.size(); }
  [[nodiscard]] const std::string& token(std::size_t id) const {
    return tokens_[id].get_ref<const std::string&>();
  }
  [[nodiscard]] int type(std::size_t id) const {
    return types_.empty() || !types_[id].is_number_integer() ? 1 : types_[id].get<int>();
  }
  [[nodiscard]] const json* find(const std::string& key) const {
    const auto found = file_.metadata().find(kPrefix + key);
    return found == file_.metadata().end() ? nullptr : &*found;
  }
  [[nodiscard]] std::string text(const std::string& key, const std::string& absent) const {
    const json* value = find(key);
    return value != nullptr && value->is_string() ? value->get<std::string>() : absent;
  }
  [[nodiscard]] bool flag(const std::string& key, bool absent) const {
    const json* value = find(key);
    return value != nullptr && value->is_boolean() ? value->get<bool>() : absent;
  }
  /// The id under `key`; -1 when there is none in the vocabulary.
  [[nodiscard]] int id(const std::string& key) const {
    const json* value = find(key);
    return value != nullptr && value->is_number_integer() && *value >= 0 && *value < size()
               ? value->get<int>()
               : -1;
  }
  [[nodiscard]] const json& list(const std::string& key) const {
    static const json none = json::array();
    const json* value = find(key);
    require(value == nullptr || value->is_array(), "{}: {}{}: expected an array", where(), kPrefix,
            key);
    return value == nullptr ? none : *value;
  }

 private:
  const gguf::File& file_;
  const json& tokens_;
  const json& types_;
};

constexpr const char* kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";

/// The meaning of a value of "tokenizer.ggml.pre".
struct PreTokenization {
  std::string_view name;
  std::array<const char*, 2> cuts;  // applied in order; null: no second one
  bool whole_words = false;         // a piece that is in the vocabulary is not merged from parts
  bool add_bos = false;             // unless the file says otherwise
  bool compose = false;             // applies NFC first
};

constexpr std::array<PreTokenization, 17> kPreTokenizations{{
    {"llama-bpe", {kLlama3}, true, true},
    {"llama3", {kLlama3}, true, true},
    {"llama-v3", {kLlama3}, true, true},
    {"dbrx", {kLlama3}},
    {"smaug-bpe", {kLlama3}},
    {"qwen2", {kQwen2}, false, false, true},
    {"qwen35", {kQwen35}, false, false, true},
    {"deepseek-r1-qwen", {kQwen2}, false, false, true},
    {"tekken", {kTekken}, true, true},
    {"gpt-2", {kGpt2}},
    {"gpt2", {kGpt2}},
    {"olmo", {kGpt2}},
    {"exaone4", {kGpt2}},
    {"seed-coder", {kSeedCoder}},
    {"gpt-4o", {kGpt4o}},
    {"smollm", {R"(\p{N})", kGpt2}},
    {"refact", {R"(\p{N})", kGpt2}},
}};

const PreTokenization& pre_tokenization(const TokenData& data) {
  const std::string name = data.text("pre", "");
  const auto* found = std::ranges::find(kPreTokenizations, name, &PreTokenization::name);
  require(found != kPreTokenizations.end(), "{}: {}pre {} is not supported", data.where(), kPrefix,
          in_quotes(name));
  return *found;
}

json pre_tokenizer_json(const PreTokenization& pre) {
  json steps = json::array();
  for (const char* cut : pre.cuts) {
    if (cut != nullptr) {
      steps.push_back({{"type", "Split"},
                       {"pattern", {{"Regex", cut}}},
                       {"behavior", "Isolated"},
                       {"invert", false}});
    }
  }
  steps.push_back({{"type", "ByteLevel"},
                   {"add_prefix_space", false},
                   {"trim_offsets", true},
                   {"use_regex", false}});
  return {{"type", "Sequence"}, {"pretokenizers", steps}};
}

/// The post-processor that adds tokens before and after every text.
json post_processor_json(const TokenData& data, bool add_bos) {
  json single = json::array();
  json specials = json::object();
  const auto add = [&](const char* key) {
    const int id = data.id(key);
    require(id >= 0, "{}: {}{} is missing, but is to be added to texts", data.where(), kPrefix,
            key);
    const std::string& token = data.token(static_cast<std::size_t>(id));
    single.push_back({{"SpecialToken", {{"id", token}, {"type_id", 0}}}});
    specials[token] = {{"id", token}, {"ids", {id}}, {"tokens", {token}}};
  };
  if (data.flag("add_bos_token", add_bos)) {
    add("bos_token_id");
  }
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  if (data.flag("add_eos_token", false)) {
    add("eos_token_id");
  }
  if (single.size() == 1) {
    return nullptr;
  }
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", single},
          {"special_tokens", specials}};
}

/// A byte-level BPE in tokenizer.json's format.
json bpe_json(const TokenData& data) {
  const PreTokenization& pre = pre_tokenization(data);
  json vocabulary = json::object();
  json added = json::array();
  for (std::size_t id = 0; id < data.size(); ++id) {
    const int type = data.type(id);
    if (type == kUnused) {
      continue;
    }
    vocabulary[data.token(id)] = id;
    if (type == kControl || type == kUserDefined) {
      added.push_back({{"id", id},
                       {"content", data.token(id)},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", type == kControl}});
    }
  }
  return {{"version", "1.0"},
          {"added_tokens", added},
          {"normalizer", pre.compose ? json{{"type", "NFC"}} : json()},
          {"pre_tokenizer", pre_tokenizer_json(pre)},
          {"post_processor", post_processor_json(data, pre.add_bos)},
          {"decoder",
           {{"type", "ByteLevel"},
            {"add_prefix_space", true},
            {"trim_offsets", true},
            {"use_regex", true}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", data.list("merges")},
            {"ignore_merges", pre.whole_words}}}};
}

PieceVocabulary sentencepiece_of(const TokenData& data) {
  const json& scores = data.list("scores");
  require(scores.size() == data.size() &&
              std::ranges::all_of(scores, [](const json& score) { return score.is_number(); }),
          "{}: {}scores: expected a number for each of {} tokens", data.where(), kPrefix,
          data.size());
  PieceVocabulary model;
  for (std::size_t id = 0; id < data.size(); ++id) {
    model.pieces.push_back({data.token(id), scores[id].get<float>(), data.type(id)});
  }
  model.space_before = data.flag("add_space_prefix", true);
  model.unknown = std::max(0, data.id("unknown_token_id"));
  model.begin = data.id("bos_token_id");
  model.end = data.id("eos_token_id");
  return model;
}

/// The vocabulary as one of Hugging Face's files.
struct TokenizerFile {
  std::string name;
  std::string text;
};

TokenizerFile tokenizer_file(const gguf::File& file) {
  const auto whole = file.metadata().find("tokenizer.huggingface.json");
  if (whole != file.metadata().end() && whole->is_string()) {
    return {"tokenizer.json", whole->get<std::string>()};
  }
  const TokenData data(file);
  const std::string model = data.text("model", "");
  if (model == "gpt2") {
    return {"tokenizer.json", json_text(bpe_json(data))};
  }
  require(model == "llama", "{}: {}model {} is not supported, expected \"gpt2\" or \"llama\"",
          data.where(), kPrefix, in_quotes(model));
  return {"tokenizer.model", write_sentencepiece(sentencepiece_of(data))};
}

SentencePieceOptions sentencepiece_options(const TokenData& data) {
  return {.add_bos = data.flag("add_bos_token", true),
          .add_eos = data.flag("add_eos_token", false)};
}

}  // namespace

std::unique_ptr<const Tokenizer> gguf_tokenizer(const gguf::File& file) {
  const TokenizerFile tokenizer = tokenizer_file(file);
  const std::string where = file.path().string();
  return tokenizer.name == "tokenizer.json"
             ? parse_tokenizer_json(tokenizer.text, where + ": tokenizer")
             : parse_sentencepiece(tokenizer.text, where, sentencepiece_options(TokenData(file)));
}

void write_gguf_tokenizer(const gguf::File& file, const std::filesystem::path& directory) {
  const TokenizerFile tokenizer = tokenizer_file(file);
  write_text_file(directory / tokenizer.name, tokenizer.text);
  json config = json::object();
  if (tokenizer.name == "tokenizer.model") {
    const SentencePieceOptions options = sentencepiece_options(TokenData(file));
    config = {{"tokenizer_class", "LlamaTokenizer"},
              {"add_bos_token", options.add_bos},
              {"add_eos_token", options.add_eos}};
  } else {
    config["tokenizer_class"] = "PreTrainedTokenizerFast";
  }
  for (const auto& [name, token] : gguf_named_tokens(file)) {
    config[name] = token;
  }
  const auto templates = gguf_templates(file);
  if (templates.size() == 1 && templates.front().first == "default") {
    config["chat_template"] = templates.front().second;
  } else {
    for (const auto& [name, source] : templates) {
      config["chat_template"].push_back({{"name", name}, {"template", source}});
    }
  }
  write_text_file(directory / "tokenizer_config.json", json_text(config, 2));
}

std::vector<std::pair<std::string, std::string>> gguf_templates(const gguf::File& file) {
  constexpr const char* kKey = "tokenizer.chat_template";
  std::vector<std::pair<std::string, std::string>> templates;
  for (const auto& [key, value] : file.metadata().items()) {
    if (key == kKey && value.is_string()) {
      templates.emplace_back("default", value.get<std::string>());
    } else if (key.starts_with(std::string(kKey) + ".") && value.is_string()) {
      templates.emplace_back(key.substr(std::string_view(kKey).size() + 1),
                             value.get<std::string>());
    }
  }
  return templates;
}

std::vector<std::pair<std::string, std::string>> gguf_named_tokens(const gguf::File& file) {
  const TokenData data(file);
  std::vector<std::pair<std::string, std::string>> tokens;
  for (const auto& [name, key] :
       {std::pair("bos_token", "bos_token_id"), std::pair("eos_token", "eos_token_id"),
        std::pair("unk_token", "unknown_token_id"), std::pair("pad_token", "padding_token_id")}) {
    if (const int id = data.id(key); id >= 0) {
      tokens.emplace_back(name, data.token(static_cast<std::size_t>(id)));
    }
  }
  return tokens;
}

}  // namespace winnow
