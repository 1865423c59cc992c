#include "tokenizer/token_model.h"

#include <algorithm>
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

// The longest token at each position of a word, from its beginning.
class WordPiece : public TokenModel {
 public:
  explicit WordPiece(const JsonField& field)
      : vocabulary_(field["vocab"]),
        unknown_token_(field["unk_token"].as_string()),
        prefix_(field["continuing_subword_prefix"].is_null()
                    ? "##"
                    : field["continuing_subword_prefix"].as_string()) {
    const JsonField longest = field["max_input_chars_per_word"];
    longest_ = longest.is_null() ? 100 : static_cast<std::size_t>(longest.as_id());
  }

  void encode(const Pieces& pieces, std::vector<std::int32_t>& out) const override {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::size_t before = out.size();
      if (!append_tokens(pieces[i], out)) {
        out.resize(before);
        const auto unknown = vocabulary_.find(unknown_token_);
        require(unknown.has_value(), "{} is not in model.vocab: there is no token for {}",
                in_quotes(unknown_token_), in_quotes(pieces[i]));
        out.push_back(*unknown);
      }
    }
  }
  [[nodiscard]] const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  // False: some part has no token, or the word is too long.
  bool append_tokens(std::string_view word, std::vector<std::int32_t>& out) const {
    const auto is_begin = [](char byte) {
      return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U;
    };
    if (static_cast<std::size_t>(std::ranges::count_if(word, is_begin)) > longest_) {
      return false;
    }
    std::string part;
    for (std::size_t begin = 0; begin < word.size();) {
      std::optional<std::int32_t> id;
      std::size_t end = word.size();
      for (; end > begin && !id; --end) {
        if (end == word.size() || is_begin(word[end])) {
          part.assign(begin > 0 ? prefix_ : "").append(word.substr(begin, end - begin));
          id = vocabulary_.find(part);
        }
      }
      if (!id) {
        return false;
      }
      out.push_back(*id);
      begin = end + 1;
    }
    return true;
  }

  Vocabulary vocabulary_;
  std::string unknown_token_;
  std::string prefix_;
  std::size_t longest_ = 0;
};

// Files of old versions have no type.
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
  if (type == "WordPiece") {
    return std::make_unique<WordPiece>(field);
  }
  field.unsupported(fmt::format("model {}", in_quotes(type)));
}

}  // namespace winnow
