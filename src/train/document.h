// One line of training data as tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::train {

/// `weights`: the weight of each token's prediction in the loss; empty: all are 1. `ignored`: keys
/// of its object that have no effect.
struct Document {
  std::vector<std::int32_t> tokens;
  std::vector<float> weights;
  std::vector<std::string> ignored = {};
};

/// The tokenizer in `model`. Throws Error when it has tokens that the model's vocabulary lacks.
std::shared_ptr<const Tokenizer> load_fitting_tokenizer(const std::filesystem::path& model,
                                                        const model::ModelSpec& spec);

/// Makes documents from JSON objects with one of
///   "text"                     running text
/// "parts"                    [{"text": ..., "weight": 8}, ...]: consecutive texts, which may
/// name special tokens, each with its weight in the loss
///   "prompt" and "completion"  texts
///   "messages"                 a chat, rendered by the model's template
/// An end-of-text token is added to texts and completions if the model has one. No
/// beginning-of-text token is: packing adds it. Immutable, usable from many threads.
class DocumentEncoder {
 public:
  /// `mask_prompts`: in prompts and chats, only completions and the assistant's answers are
  /// trained.
  DocumentEncoder(const std::filesystem::path& model, const model::ModelSpec& spec,
                  bool mask_prompts);

  /// Throws Error that says what is wrong with the line.
  [[nodiscard]] Document encode(std::string_view line) const;

 private:
  enum class Special : bool { spelled_out, parsed };
  void append_text(Document& document, std::string_view text, float weight,
                   Special special = Special::spelled_out) const;
  void append_end(Document& document) const;
  [[nodiscard]] Document parts(const nlohmann::ordered_json& parts) const;
  [[nodiscard]] Document chat(const nlohmann::ordered_json& messages) const;

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::shared_ptr<const ChatTemplate> template_;
  std::optional<std::int32_t> begin_;
  std::optional<std::int32_t> end_;
  float prompt_weight_;
};

}  // namespace winnow::train
