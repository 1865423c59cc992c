#include "tokenizer/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/sentencepiece_model.h"
#include "tokenizer/token_text.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using Kind = SentencePieceModel::Kind;

// Appended to a serialized model, this sets normalizer_spec.add_dummy_prefix to false: later
// fields win.
constexpr std::string_view kNoDummyPrefix("\x1A\x02\x18\x00", 4);

// The library keeps all merges of a text in one heap; for a long text, memory latency then
// dominates.
constexpr std::size_t kPartBytes = 2048;

// The length of a first part of `text`, about kPartBytes, that ends before a space which is not
// part of a run of spaces.
std::size_t part_length(std::string_view text) {
  for (std::size_t at = text.find(' ', kPartBytes); at != std::string_view::npos;
       at = text.find(' ', at + 1)) {
    const std::string_view before = text.substr(0, at);
    if (!before.ends_with(' ') && !before.ends_with(kVisibleSpace)) {
      return at;
    }
  }
  return text.size();
}

class Processor {
 public:
  Processor(std::string_view model, std::string name) : name_(std::move(name)) {
    const auto status = processor_.LoadFromSerializedProto(model);
    require(status.ok(), "{}: not a SentencePiece model: {}", name_, status.ToString());
  }

  void encode(std::string_view text, std::vector<std::int32_t>& out) const {
    std::vector<int> ids;
    const auto status = processor_.Encode(text, &ids);
    require(status.ok(), "{}: encoding a text of {} bytes failed: {}", name_, text.size(),
            status.ToString());
    out.insert(out.end(), ids.begin(), ids.end());
  }

  [[nodiscard]] int bos() const { return processor_.bos_id(); }
  [[nodiscard]] int eos() const { return processor_.eos_id(); }

 private:
  std::string name_;
  sentencepiece::SentencePieceProcessor processor_;
};

class SentencePieceTokenizer : public Tokenizer {
 public:
  SentencePieceTokenizer(std::string_view bytes, const std::string& name,
                         SentencePieceOptions options)
      : name_(name),
        model_(read_sentencepiece_model(bytes, name)),
        processor_(bytes, name),
        added_(all_added(std::move(options.added)), Normalizer(), name),
        legacy_(options.legacy) {
    if (model_.add_dummy_prefix) {
      inner_ = std::make_unique<Processor>(std::string(bytes) + std::string(kNoDummyPrefix), name);
    }
    if (options.add_bos && processor_.bos() >= 0) {
      prefix_.push_back(processor_.bos());
    }
    if (options.add_eos && processor_.eos() >= 0) {
      suffix_.push_back(processor_.eos());
    }
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      ids_.emplace(model_.pieces[id].text, static_cast<std::int32_t>(id));
    }
  }

  using Tokenizer::encode;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 EncodeOptions options) const override {
    // The library uses int sizes, and one byte can become three.
    require(text.size() < std::numeric_limits<int>::max() / 4,
            "a text of {} bytes is too long to tokenize; expected less than 512 MiB", text.size());
    std::vector<std::int32_t> ids;
    if (options.add_special) {
      ids = prefix_;
    }
    for (const auto& part :
         added_.split(to_valid_utf8(text), Normalizer(), options.parse_special)) {
      if (part.id >= 0) {
        ids.push_back(part.id);
      } else {
        encode_part(part.text, part.origin > 0 || legacy_, ids);
      }
    }
    if (options.add_special) {
      ids.insert(ids.end(), suffix_.begin(), suffix_.end());
    }
    return ids;
  }

  [[nodiscard]] std::string token_bytes(std::int32_t id, bool skip_special) const override {
    if (const AddedToken* added = added_.find(id)) {
      return added->special && skip_special ? std::string() : added->content;
    }
    require(has_token(id), "{}: no token has id {}; expected one from 0 to {}", name_, id,
            vocab_size() - 1);
    const SentencePieceModel::Piece& piece = model_.pieces[static_cast<std::size_t>(id)];
    switch (piece.kind) {
      case Kind::unknown:
        return model_.unknown_surface;
      case Kind::byte:
        return std::string(1, static_cast<char>(byte_token(piece.text)));
      default:
        return replace_all(piece.text, kVisibleSpace, " ");
    }
  }

  [[nodiscard]] bool drops_first_space(std::int32_t id) const override {
    if (added_.find(id) != nullptr || id < 0 || id >= piece_count()) {
      return false;
    }
    const Kind kind = model_.pieces[static_cast<std::size_t>(id)].kind;
    return kind != Kind::unknown && kind != Kind::byte &&
           (model_.add_dummy_prefix || model_.remove_extra_whitespaces);
  }
  [[nodiscard]] Malformed malformed() const override { return Malformed::each_byte; }

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const override {
    if (const AddedToken* added = added_.find(token)) {
      return added->id;
    }
    const auto found = ids_.find(token);
    return found == ids_.end() ? std::nullopt : std::optional(found->second);
  }

  [[nodiscard]] bool has_token(std::int32_t id) const override {
    return added_.find(id) != nullptr || (id >= 0 && id < piece_count());
  }

  [[nodiscard]] bool is_special(std::int32_t id) const override {
    const AddedToken* added = added_.find(id);
    return added != nullptr && added->special;
  }

  [[nodiscard]] std::int32_t vocab_size() const override {
    return std::max(piece_count(), added_.size());
  }

 private:
  [[nodiscard]] std::int32_t piece_count() const {
    return static_cast<std::int32_t>(model_.pieces.size());
  }

  void encode_part(std::string_view text, bool prefix, std::vector<std::int32_t>& ids) const {
    const Processor& inner = inner_ ? *inner_ : processor_;
    while (!text.empty()) {
      const std::size_t length = model_.separable ? part_length(text) : text.size();
      (prefix ? processor_ : inner).encode(text.substr(0, length), ids);
      text.remove_prefix(length);
      prefix = false;
    }
  }

  // `added`, plus the control pieces that it does not list.
  [[nodiscard]] std::vector<AddedToken> all_added(std::vector<AddedToken> added) const {
    std::vector<bool> named(model_.pieces.size());
    for (AddedToken& token : added) {
      token.normalized = false;
      if (token.id < piece_count()) {
        named[static_cast<std::size_t>(token.id)] = true;
      }
    }
    for (std::size_t id = 0; id < model_.pieces.size(); ++id) {
      const SentencePieceModel::Piece& piece = model_.pieces[id];
      if (piece.kind == Kind::control && !named[id]) {
        added.push_back(
            {.id = static_cast<std::int32_t>(id), .content = piece.text, .special = true});
      }
    }
    return added;
  }

  std::string name_;
  SentencePieceModel model_;
  Processor processor_;
  std::unique_ptr<const Processor> inner_;  // puts no space before text parts after the first
  AddedTokens added_;
  bool legacy_;
  std::vector<std::int32_t> prefix_;
  std::vector<std::int32_t> suffix_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // keys point into model_
};

}  // namespace

std::unique_ptr<const Tokenizer> parse_sentencepiece(std::string_view bytes,
                                                     const std::string& name,
                                                     SentencePieceOptions options) {
  return std::make_unique<SentencePieceTokenizer>(bytes, name, std::move(options));
}

}  // namespace winnow
