#include "tokenizer/token_model.h"

#include <optional>

#include "checkpoint/json.h"
#include "tokenizer/bpe.h"
#include "tokenizer/unigram.h"

namespace winnow {
namespace {

class WordLevel : public TokenModel {
 public:
  explicit WordLevel(const JsonField& field)
      : vocabulary_(field["vocab"]), unknown_token_(field["unk_token"].as_string()) {}

  void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      auto id = vocabulary_.find(pieces[i]);
      id = id ? id : vocabulary_.find(unknown_token_);
      require(id.has_value(), "{} is not in model.vocab, nor is the unk_token {}",
              in_quotes(pieces[i]), in_quotes(unknown_token_));
      out.push_back(*id);
    }
  }
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  Vocabulary vocabulary_;
  std::string unknown_token_;
};

// Files of old versions name no type.
std::string model_type(const JsonField& field) {
  if (!field["type"].is_null()) {
    return field.type();
  }
  return field["merges"].is_null() && field["vocab"].is_array() ? "Unigram" : "BPE";
}

}  // namespace

std::unique_ptr<const TokenModel> read_model(const JsonField& field) {
  const std::string type = model_type(field);
  if (type == "BPE") {
    return std::make_unique<Bpe>(field);
  }
  if (type == "Unigram") {
    return std::make_unique<Unigram>(field);
  }
  if (type == "WordLevel") {
    return std::make_unique<WordLevel>(field);
  }
  field.unsupported(fmt::format("model {}", in_quotes(type)));
}

}  // namespace winnow
