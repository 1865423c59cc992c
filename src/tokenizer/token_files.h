// What the files beside a vocabulary say of single tokens: tokenizer_config.json, and what older
// models have instead, special_tokens_map.json and added_tokens.json.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/added_tokens.h"

namespace winnow {

/// Read as transformers reads them: special_tokens_map.json and added_tokens.json count only where
/// tokenizer_config.json has no added_tokens_decoder, and then win over it.
class TokenFiles {
 public:
  /// No files.
  TokenFiles() = default;
  /// Files that are not there say nothing. Throws Error naming file and place for a bad one.
  explicit TokenFiles(const std::filesystem::path& directory);

  /// bos_token, eos_token and the like, image_token ...
  [[nodiscard]] const std::vector<std::pair<std::string, AddedToken>>& named() const {
    return named_;
  }
  /// The tokens that are listed with their ids, in the order of these.
  [[nodiscard]] const std::vector<AddedToken>& listed() const { return listed_; }
  /// What has to be added to a tokenizer.json that lists `own` tokens itself, in this order: tokens
  /// that only these files have, and those whose flags they change.
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
  bool older_ = false;  // the list is not tokenizer_config.json's
};

}  // namespace winnow
