// Converts text to token ids and back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

/// How malformed UTF-8 is replaced in a decoded text.
enum class Malformed : std::uint8_t {
  sequence,   // each malformed sequence becomes one U+FFFD (byte-level BPE)
  each_byte,  // each malformed byte becomes one (SentencePiece)
  byte_run,   // each byte becomes one in a run of byte tokens that is malformed
              // (ByteFallback)
};

/// A model's vocabulary. Immutable after loading, so it may be used from many threads.
class Tokenizer {
 public:
  struct EncodeOptions {
    bool add_special = true;    // BOS and the like, as in the model's post-processor
    bool parse_special = true;  // "<|eot_id|>" in the text becomes that token, not its characters
  };

  Tokenizer() = default;
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;
  virtual ~Tokenizer() = default;

  /// The ids of `text`. Malformed UTF-8 becomes U+FFFD, one for each maximal subpart. Throws
  /// Error only for a text that is too long (2 GiB) or on which a model's regular expression
  /// exceeds its limits.
  [[nodiscard]] virtual std::vector<std::int32_t> encode(std::string_view text,
                                                         EncodeOptions options) const = 0;
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text) const {
    return encode(text, EncodeOptions{});
  }

  /// The bytes of one token in a text (a token may hold part of a character).
  /// Special tokens give "" if `skip_special`. Throws Error for an id without a token.
  [[nodiscard]] virtual std::string token_bytes(std::int32_t id, bool skip_special) const = 0;

  /// The same for a token that begins a text.
  [[nodiscard]] virtual std::string first_token_bytes(std::int32_t id, bool skip_special) const {
    return token_bytes(id, skip_special);
  }

  /// Whether a token has a different text at the end of a text: last_token_bytes(). `first`:
  /// it also begins the text.
  [[nodiscard]] virtual bool marks_last() const { return false; }
  [[nodiscard]] virtual std::string last_token_bytes(std::int32_t id, bool first) const {
    return first ? first_token_bytes(id, false) : token_bytes(id, false);
  }
  /// Whether a token that repeats the previous one has no text.
  [[nodiscard]] virtual bool drops_repeats() const { return false; }

  /// The text of `ids`, always valid UTF-8; malformed sequences become U+FFFD. Throws Error for an
  /// id without a token.
  [[nodiscard]] virtual std::string decode(std::span<const std::int32_t> ids,
                                           bool skip_special) const;

  /// Whether this token's leading space is dropped at the beginning of the text:
  /// SentencePiece inserted it.
  [[nodiscard]] virtual bool drops_first_space(std::int32_t /*id*/) const { return false; }
  [[nodiscard]] virtual Malformed malformed() const { return Malformed::sequence; }
  /// Whether the token encodes a single byte ("<0x0A>"). Only used for
  /// Malformed::byte_run.
  [[nodiscard]] virtual bool is_byte(std::int32_t /*id*/) const { return false; }

  /// The id of a token by its name: in byte-level vocabularies, spelled as in tokenizer.json.
  [[nodiscard]] virtual std::optional<std::int32_t> find(std::string_view token) const = 0;
  /// Whether a token has this id: a model's vocabulary may be larger than the
  /// tokenizer's, which may have holes.
  [[nodiscard]] virtual bool has_token(std::int32_t id) const = 0;
  /// Whether `id` is a special token's; false for an id without a token.
  [[nodiscard]] virtual bool is_special(std::int32_t id) const = 0;
  /// One more than the largest id.
  [[nodiscard]] virtual std::int32_t vocab_size() const = 0;
};

/// Reads a model directory's tokenizer.json (tokenizer_json.h), else its tokenizer.model
/// (SentencePiece: sentencepiece.h), and related files (token_files.h). If winnow does not
/// support the kind of tokenizer.json, tokenizer.model is used instead if it exists. Throws Error
/// naming file and cause.
std::unique_ptr<const Tokenizer> load_tokenizer(const std::filesystem::path& directory);

}  // namespace winnow
