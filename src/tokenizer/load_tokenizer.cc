#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/json.h"
#include "tokenizer/json_field.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

// The JSON object in `path`; an empty one when there is no such file.
nlohmann::json read_object(const fs::path& path) {
  if (!fs::exists(path)) {
    return nlohmann::json::object();
  }
  const MappedFile file(path);
  nlohmann::json document = read_json_text(text_of(file), path.string());
  require(document.is_object(), "{}: expected an object", path.string());
  return document;
}

std::int32_t parse_id(const std::string& text, const JsonField& field) {
  std::int32_t id = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  require(error == std::errc() && end == text.data() + text.size() && id >= 0 && id <= kMaxTokenId,
          "{}: {} is not a token id; expected a whole number from 0 to {}", field.where(),
          in_quotes(text), kMaxTokenId);
  return id;
}

// tokenizer_config.json's added_tokens_decoder, {"32000": {"content": ...}, ...}, and what
// added_tokens.json, {"<pad>": 32000, ...}, has beyond it.
std::vector<AddedToken> read_added(const JsonField& config, const JsonField& list) {
  std::vector<AddedToken> tokens;
  if (const JsonField decoder = config["added_tokens_decoder"]; decoder.is_object()) {
    for (const auto& item : decoder.json().items()) {
      tokens.push_back(parse_added_token(decoder[item.key()], parse_id(item.key(), decoder)));
    }
  }
  for (const auto& item : list.json().items()) {
    const JsonField field(item.value(), list.where() + ": " + in_quotes(item.key()));
    const std::int32_t id = field.as_id();
    if (std::none_of(tokens.begin(), tokens.end(),
                     [&](const AddedToken& token) { return token.id == id; })) {
      tokens.push_back({.id = id, .content = item.key()});
    }
  }
  return tokens;
}

SentencePieceOptions read_options(const fs::path& directory) {
  const fs::path config_path = directory / "tokenizer_config.json";
  const fs::path list_path = directory / "added_tokens.json";
  const nlohmann::json config_document = read_object(config_path);
  const nlohmann::json list_document = read_object(list_path);
  const JsonField config(config_document, config_path.string());
  SentencePieceOptions options;
  options.add_bos = config["add_bos_token"].as_bool_or(options.add_bos);
  options.add_eos = config["add_eos_token"].as_bool_or(options.add_eos);
  options.legacy = config["legacy"].as_bool_or(options.legacy);
  options.added = read_added(config, JsonField(list_document, list_path.string()));
  return options;
}

std::unique_ptr<const Tokenizer> load_model(const fs::path& directory) {
  const fs::path path = directory / "tokenizer.model";
  const MappedFile file(path);
  return parse_sentencepiece(text_of(file), path.string(), read_options(directory));
}

}  // namespace

std::unique_ptr<const Tokenizer> load_tokenizer(const fs::path& directory) {
  require(fs::is_directory(directory), "{}: not a model directory", directory.string());
  const fs::path path = directory / "tokenizer.json";
  const bool has_model = fs::exists(directory / "tokenizer.model");
  if (!fs::exists(path)) {
    require(has_model, "{}: no tokenizer; expected tokenizer.json or tokenizer.model",
            directory.string());
    return load_model(directory);
  }
  const MappedFile file(path);
  try {
    return parse_tokenizer_json(text_of(file), path.string());
  } catch (const Unsupported&) {
    if (!has_model) {
      throw;
    }
  }
  return load_model(directory);
}

}  // namespace winnow
