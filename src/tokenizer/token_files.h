// Single tokens in the files next to a vocabulary: tokenizer_config.json, and in older
// models special_tokens_map.json and added_tokens.json.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace winnow {

/// Read as transformers does: special_tokens_map.json and added_tokens.json are used only if
/// tokenizer_config.json has no added_tokens_decoder, and then take precedence.
class TokenFiles {
 public:
  /// No files.
  TokenFiles() = default;
  /// Missing files are ignored. Throws Error naming file and position for an invalid one.
  explicit TokenFiles(const std::filesystem::path& directory);

  /// bos_token, eos_token and the like, image_token ...
  [[nodiscard]] const std::vector<std::pair<std::string, AddedToken>>& named() const {
    return named_;
  }
  /// The tokens that are listed with ids, ordered by id.
  [[nodiscard]] const std::vector<AddedToken>& listed() const { return listed_; }
  /// The tokens to add to a tokenizer.json that lists `own` tokens itself, in this order: tokens
  /// that only these files have, and tokens whose flags they change.
  [[nodiscard]] std::vector<AddedToken> beside(const std::vector<AddedToken>& own) const;

 private:
  void read_older(const std::filesystem::path& directory);
  void read_named(const JsonField& object, const nlohmann::ordered_json& in_order, bool special);
  void add_extra(const JsonField& list);
  void read_decoder(const JsonField& decoder);
  void read_list(const JsonField& list);
  void set_named(const std::string& name, AddedToken token);
  [[nodiscard]] bool is_named(const std::string& content) const;
  [[nodiscard]] bool is_special(const std::string& content) const;

  std::vector<std::pair<std::string, AddedToken>> named_;
  std::vector<AddedToken> extra_;  // special tokens without a name
  std::vector<AddedToken> listed_;
  bool older_ = false;  // the list is not from tokenizer_config.json
};

}  // namespace winnow
