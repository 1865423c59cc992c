#include "tokenizer/tokenizer_json.h"

#include <algorithm>

#include "checkpoint/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/char_class.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/text_memo.h"
#include "tokenizer/token_model.h"
#include "tokenizer/token_text.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

constexpr std::size_t kStepBytes = 1024;  // between checkpoints

// The beginning of the character that contains byte `at`.
std::size_t begin_of_character(std::string_view text, std::size_t at) {
  while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) {
    --at;
  }
  return at;
}

// The end of the first character at or after `at` (or around it) that is not white space; the
// text's end if there is none.
std::size_t end_of_visible(std::string_view text, std::size_t at) {
  for (at = begin_of_character(text, at); at < text.size();) {
    const std::string_view character = text.substr(at, utf8_length(text[at]));
    at += character.size();
    if (leading_space(character) == 0) {
      break;
    }
  }
  return at;
}

class JsonTokenizer : public Tokenizer {
 public:
  JsonTokenizer(const JsonField& file, const TokenFiles& beside)
      : name_(file.where()),
        normalizer_(file["normalizer"]),
        pre_tokenizer_(file["pre_tokenizer"]),
        text_(file["decoder"]),
        post_processor_(file["post_processor"]),
        model_(read_model(file["model"])),
        added_(read_added(file["added_tokens"], beside)) {
    check_template();
  }

  using Tokenizer::encode;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 EncodeOptions options) const override {
    std::vector<std::int32_t> ids;
    ids.reserve(text.size() / 3);  // almost always enough
    if (options.add_special) {
      ids.insert(ids.end(), post_processor_.prefix().begin(), post_processor_.prefix().end());
    }
    for (const auto& part : added_.split(to_valid_utf8(text), normalizer_, options.parse_special)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_text(part.text, part.origin, ids);
      }
    }
    if (options.add_special) {
      ids.insert(ids.end(), post_processor_.suffix().begin(), post_processor_.suffix().end());
    }
    return ids;
  }

  [[nodiscard]] std::string token_bytes(std::int32_t id, bool skip_special) const override {
    return bytes_of(id, skip_special, /*first=*/false);
  }
  [[nodiscard]] std::string first_token_bytes(std::int32_t id, bool skip_special) const override {
    return bytes_of(id, skip_special, /*first=*/true);
  }

  [[nodiscard]] bool marks_last() const override { return text_.marks_last(); }
  [[nodiscard]] std::string last_token_bytes(std::int32_t id, bool first) const override {
    return text_.bytes_of(text_of(id), first, /*last=*/true);
  }
  [[nodiscard]] bool drops_repeats() const override { return text_.drops_repeats(); }

  [[nodiscard]] bool drops_first_space(std::int32_t /*id*/) const override {
    return text_.drops_first_space();
  }
  [[nodiscard]] Malformed malformed() const override {
    return text_.has_byte_fallback() ? Malformed::byte_run : Malformed::sequence;
  }
  [[nodiscard]] bool is_byte(std::int32_t id) const override {
    return byte_token(text_of(id)) >= 0;
  }

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const override {
    const AddedToken* added = added_.find(token);
    return added != nullptr ? std::optional(added->id) : model_->vocabulary().find(token);
  }

  [[nodiscard]] bool has_token(std::int32_t id) const override { return find_text(id) != nullptr; }

  [[nodiscard]] bool is_special(std::int32_t id) const override { return added_.is_special(id); }

  [[nodiscard]] std::int32_t vocab_size() const override {
    return std::max(model_->vocabulary().size(), added_.size());
  }

 private:
  // Appends the ids of a text without added tokens. Its first `origin` bytes come from the first
  // character of the whole text. For a long text, the memo may know the ids of the
  // beginning.
  void encode_text(std::string_view text, std::size_t origin,
                   std::vector<std::int32_t>& ids) const {
    if (text.size() <= kStepBytes || text.size() > TextMemo::kMostTextBytes ||
        !pre_tokenizer_.goes_on()) {
      model_->encode(pre_tokenizer_.apply(text, origin), ids);
      return;
    }
    const TextMemo::Match known = memo_.find(text);
    const auto begin = static_cast<std::ptrdiff_t>(ids.size());
    ids.insert(ids.end(), known.ids().begin(), known.ids().end());
    std::vector<TextMemo::Checkpoint> checkpoints(known.checkpoints().begin(),
                                                  known.checkpoints().end());
    TextMemo::Checkpoint last = checkpoints.empty() ? TextMemo::Checkpoint{} : checkpoints.back();
    std::size_t step = kStepBytes;
    for (std::size_t at = last.seen + step; at < text.size(); at = last.seen + step) {
      const std::size_t seen = end_of_visible(text, at);
      if (seen == text.size()) {
        break;
      }
      const auto [pieces, end] = pre_tokenizer_.cut_from(text.substr(0, seen), last.end, true);
      step = end > last.end ? kStepBytes : 2 * step;  // a piece may be as long as the text
      model_->encode(pieces, ids);
      last = {seen, end, ids.size() - static_cast<std::size_t>(begin)};
      checkpoints.push_back(last);
    }
    if (checkpoints.size() > known.count) {
      memo_.put({std::string(text), {ids.begin() + begin, ids.end()}, std::move(checkpoints)});
    }
    model_->encode(pre_tokenizer_.cut_from(text, last.end, false).pieces, ids);
  }

  [[nodiscard]] std::string bytes_of(std::int32_t id, bool skip_special, bool first) const {
    return skip_special && is_special(id) ? std::string() : text_.bytes_of(text_of(id), first);
  }

  [[nodiscard]] const std::string* find_text(std::int32_t id) const {
    const AddedToken* added = added_.find(id);
    return added != nullptr ? &added->text : model_->vocabulary().token(id);
  }

  [[nodiscard]] const std::string& text_of(std::int32_t id) const {
    const std::string* token = find_text(id);
    require(token != nullptr, "{}: no token has id {}; expected one from 0 to {}", name_, id,
            vocab_size() - 1);
    return *token;
  }

  // The tokens that the file lists, and those of related files, with their final ids.
  [[nodiscard]] AddedTokens read_added(const JsonField& field, const TokenFiles& beside) const {
    std::vector<AddedToken> tokens;
    if (!field.is_null()) {
      for (const JsonField& item : field.elements()) {
        tokens.push_back(parse_added_token(item, item["id"].as_id()));
      }
    }
    const std::vector<AddedToken> more = beside.beside(tokens);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return {with_ids(tokens, model_->vocabulary()), normalizer_, field.where()};
  }

  // The ids in the template must be tokens, or encoded text could not be decoded.
  void check_template() const {
    for (const auto* ids : {&post_processor_.prefix(), &post_processor_.suffix()}) {
      for (const std::int32_t id : *ids) {
        require(has_token(id), "{}: post_processor: no token has id {}; expected a token's", name_,
                id);
      }
    }
  }

  std::string name_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  TokenText text_;
  PostProcessor post_processor_;
  std::unique_ptr<const TokenModel> model_;
  AddedTokens added_;
  mutable TextMemo memo_;  // used by encode_text()
};

}  // namespace

std::unique_ptr<const Tokenizer> parse_tokenizer_json(std::string_view text,
                                                      const std::string& name,
                                                      const TokenFiles& beside) {
  const nlohmann::json document = read_json_text(text, name);
  const JsonField file(document, name);
  return std::make_unique<JsonTokenizer>(file, beside);
}

}  // namespace winnow
