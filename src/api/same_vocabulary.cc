#include "api/same_vocabulary.h"

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"
#include "checkpoint/json.h"
#include "tokenizer/tokenizer.h"

namespace winnow::engine {
namespace {

std::optional<std::string> text_of(const Tokenizer& tokenizer, std::int32_t token) {
  return tokenizer.has_token(token) ? std::optional(tokenizer.token_bytes(token, false))
                                    : std::nullopt;
}

std::string shown(const std::optional<std::string>& text) {
  return text ? in_quotes(*text) : "none";
}

}  // namespace

bool has_tokenizer(const std::filesystem::path& model) {
  if (std::filesystem::is_regular_file(model)) {  // GGUF
    return true;
  }
  return std::filesystem::exists(model / "tokenizer.json") ||
         std::filesystem::exists(model / "tokenizer.model");
}

void require_same_vocabulary(const model::ModelSpec& spec, const std::filesystem::path& directory,
                             const model::ModelSpec& draft,
                             const std::filesystem::path& draft_directory) {
  require(spec.vocab == draft.vocab,
          "--draft-model {}: its vocabulary has {} tokens, the model's {}: they must be the same",
          draft_directory.string(), draft.vocab, spec.vocab);
  if (directory.empty() || !has_tokenizer(directory) || !has_tokenizer(draft_directory)) {
    return;
  }
  const auto tokenizer = load_tokenizer(directory);
  const auto draft_tokenizer = load_tokenizer(draft_directory);
  int different = 0;
  std::int32_t first = 0;
  for (std::int32_t token = 0; token < spec.vocab; ++token) {
    if (text_of(*tokenizer, token) != text_of(*draft_tokenizer, token)) {
      first = different == 0 ? token : first;
      ++different;
    }
  }
  if (different > spec.vocab / 100) {
    fail(
        "--draft-model {}: {} of its {} tokens differ from the model's, first token {}: {}, the "
        "model's is {}: they must have the same tokenizer",
        draft_directory.string(), different, spec.vocab, first,
        shown(text_of(*draft_tokenizer, first)), shown(text_of(*tokenizer, first)));
  }
}

}  // namespace winnow::engine
