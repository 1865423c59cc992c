// Tokens that are found in the text itself, before it is normalized, split and merged.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "tokenizer/json_field.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/vocabulary.h"

namespace winnow {

struct AddedToken {
  std::int32_t id = -1;
  std::string content;
  std::string text{};        // its decoded text: its content, normalized if `normalized`
  bool single_word = false;  // only if no word character precedes or follows
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = false;   // matched in the normalized text
  bool special = false;      // left out of decoded text, if requested

  bool operator==(const AddedToken&) const = default;
};

/// Reads one of the objects that describe tokens in tokenizer.json and tokenizer_config.json; its
/// id is a member in the former and a key in the latter.
AddedToken parse_added_token(const JsonField& field, std::int32_t id);

/// Assigns ids as Hugging Face's tokenizers does, whatever ids the tokens come with: tokens
/// in the vocabulary have its ids, the others get consecutive ids after it. A repeated token
/// has its last flags; once special, it stays special. Empty ones are left out.
std::vector<AddedToken> with_ids(const std::vector<AddedToken>& tokens,
                                 const Vocabulary& vocabulary);

/// Finds the longest of a set of strings at a position in a text.
class TokenTrie {
 public:
  struct Match {
    std::int32_t value = -1;  // -1: none
    std::size_t length = 0;
  };
  /// The first of equal keys is kept. The empty key is ignored.
  void insert(std::string_view key, std::int32_t value);
  [[nodiscard]] Match longest(std::string_view text) const;
  /// The first position from `at` on where some key may begin; the text's end if there is none.
  [[nodiscard]] std::size_t next_place(std::string_view text, std::size_t at) const {
    while (at < text.size() && !first_[static_cast<unsigned char>(text[at])]) {
      ++at;
    }
    return at;
  }

 private:
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // node and byte -> node
  std::vector<std::int32_t> values_{-1};
  std::array<bool, 256> first_{};  // first bytes of keys
};

/// The added tokens of a model.
class AddedTokens {
 public:
  /// A stretch of text without added tokens, or an added token.
  struct Part {
    std::string text;
    std::int32_t id = -1;    // -1: it is text
    std::size_t begin = 0;   // of a text part: its position in the input
    std::size_t origin = 0;  // bytes at its beginning that come from the input's first character
  };

  AddedTokens() = default;
  /// Error when two tokens have one id.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
              const std::string& where);

  /// Splits `text` (valid UTF-8); text parts are returned normalized. `parse_special`: whether
  /// special tokens are matched.
  [[nodiscard]] std::vector<Part> split(std::string_view text, const Normalizer& normalizer,
                                        bool parse_special) const;

  /// Whether the token is left out of decoded text on request: its decoded text is the content of a
  /// special token.
  [[nodiscard]] bool is_special(std::int32_t id) const;
  [[nodiscard]] const AddedToken* find(std::int32_t id) const;
  [[nodiscard]] const AddedToken* find(std::string_view content) const;
  /// One more than the largest id; 0 when there are none.
  [[nodiscard]] std::int32_t size() const {
    return tokens_.empty() ? 0 : tokens_.rbegin()->first + 1;
  }

 private:
  [[nodiscard]] std::vector<Part> split_at(std::string_view text, const TokenTrie& trie,
                                           bool parse_special) const;

  std::map<std::int32_t, AddedToken> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::string> specials_;
  TokenTrie raw_;         // matched in the original text
  TokenTrie normalized_;  // matched in the normalized text
};

}  // namespace winnow
