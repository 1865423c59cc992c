// Tokens that are found in the text itself, before it is normalized, cut and merged.
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
  std::string text{};        // what it decodes to: its content, normalized if it is looked for so
  bool single_word = false;  // only where no word character stands before or after
  bool lstrip = false;       // takes the white space before it along
  bool rstrip = false;       // takes the white space after it along
  bool normalized = false;   // looked for in the normalized text
  bool special = false;      // left out of decoded text, on demand

  bool operator==(const AddedToken&) const = default;
};

/// Reads one of the objects tokenizer.json and tokenizer_config.json describe tokens with; its id
/// is a member there and a key here.
AddedToken parse_added_token(const JsonField& field, std::int32_t id);

/// The tokens with the ids that Hugging Face's tokenizers gives them, whatever ids they come with:
/// those that are in the vocabulary have theirs, the others follow each other behind it. A token
/// that comes again has its last flags; once special it stays so. Empty ones are left out.
std::vector<AddedToken> with_ids(const std::vector<AddedToken>& tokens,
                                 const Vocabulary& vocabulary);

/// Finds the longest of a set of strings at a place in a text.
class TokenTrie {
 public:
  struct Match {
    std::int32_t value = -1;  // -1: none
    std::size_t length = 0;
  };
  /// Of equal keys the first stays. The empty key is ignored.
  void insert(std::string_view key, std::int32_t value);
  [[nodiscard]] Match longest(std::string_view text) const;
  /// The first place from `at` on where some key may begin; the text's end if there is none.
  [[nodiscard]] std::size_t next_place(std::string_view text, std::size_t at) const {
    while (at < text.size() && !first_[static_cast<unsigned char>(text[at])]) {
      ++at;
    }
    return at;
  }

 private:
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // node and byte -> node
  std::vector<std::int32_t> values_{-1};
  std::array<bool, 256> first_{};  // bytes some key begins with
};

/// The added tokens of a model.
class AddedTokens {
 public:
  /// A stretch of text without added tokens, or an added token.
  struct Part {
    std::string text;
    std::int32_t id = -1;    // -1: it is text
    std::size_t begin = 0;   // of the text, in what was cut
    std::size_t origin = 0;  // bytes at its beginning that stand for the first character of all
  };

  AddedTokens() = default;
  /// Error when two tokens have one id.
  AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
              const std::string& where);

  /// Cuts `text` (valid UTF-8); the parts that are text come back normalized. `parse_special`:
  /// special tokens are looked for.
  [[nodiscard]] std::vector<Part> split(std::string_view text, const Normalizer& normalizer,
                                        bool parse_special) const;

  /// Whether it is left out of decoded text on demand: what it decodes to is the content of a
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
  TokenTrie raw_;         // looked for in the text as given
  TokenTrie normalized_;  // looked for in the normalized text
};

}  // namespace winnow
