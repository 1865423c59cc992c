#include <filesystem>

#include "base/error.h"
#include "base/mapped_file.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json.h"
#include "checkpoint/lfs_pointer.h"
#include "checkpoint/model_path.h"
#include "tokenizer/gguf_tokenizer.h"
#include "tokenizer/json_field.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/token_files.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_json.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

SentencePieceOptions read_options(const fs::path& directory) {
  const fs::path path = directory / "tokenizer_config.json";
  SentencePieceOptions options;
  options.added = TokenFiles(directory).listed();
  if (fs::exists(path)) {
    const nlohmann::json document = read_json_text(read_text_file(path), path.string());
    const JsonField config(document, path.string());
    options.add_bos = config["add_bos_token"].as_bool_or(options.add_bos);
    options.add_eos = config["add_eos_token"].as_bool_or(options.add_eos);
    options.legacy = config["legacy"].as_bool_or(options.legacy);
  }
  return options;
}

std::unique_ptr<const Tokenizer> load_model(const fs::path& directory) {
  const fs::path path = directory / "tokenizer.model";
  const MappedFile file(path);
  reject_lfs_pointer(text_of(file), path.string());
  return parse_sentencepiece(text_of(file), path.string(), read_options(directory));
}

}  // namespace

std::unique_ptr<const Tokenizer> load_tokenizer(const fs::path& directory) {
  if (is_gguf_model(directory)) {
    return gguf_tokenizer(gguf::File(directory));
  }
  const fs::path path = directory / "tokenizer.json";
  const bool has_model = fs::exists(directory / "tokenizer.model");
  if (!fs::exists(path)) {
    require(has_model, "{}: no tokenizer; expected tokenizer.json or tokenizer.model",
            directory.string());
    return load_model(directory);
  }
  const MappedFile file(path);
  try {
    return parse_tokenizer_json(text_of(file), path.string(), TokenFiles(directory));
  } catch (const Unsupported&) {
    if (!has_model) {
      throw;
    }
  }
  return load_model(directory);
}

}  // namespace winnow
