// The "post_processor" of tokenizer.json: the special tokens around a text.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenizer/json_field.h"

namespace winnow {

/// TemplateProcessing (for single texts), BertProcessing, RobertaProcessing, ByteLevel (which
/// changes no ids), and sequences of these.
class PostProcessor {
 public:
  /// Error when `field` is not a post-processor, Unsupported when its type is not supported.
  explicit PostProcessor(const JsonField& field);

  /// The ids before and after the text's ids.
  [[nodiscard]] const std::vector<std::int32_t>& prefix() const { return prefix_; }
  [[nodiscard]] const std::vector<std::int32_t>& suffix() const { return suffix_; }

 private:
  void add(const JsonField& field, int depth);
  void add_template(const JsonField& field);

  std::vector<std::int32_t> prefix_;
  std::vector<std::int32_t> suffix_;
};

}  // namespace winnow
