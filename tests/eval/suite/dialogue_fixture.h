// A common fixture of tests of chats.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "api/llm_chat.h"
#include "eval/suite/dialogue.h"

namespace winnow::eval {

inline const std::filesystem::path kDialogueModel =
    std::filesystem::path(WINNOW_SOURCE_DIR) / "assets/dms-cr8";

/// Makes prompts for the demo student, as plain text and with its template.
class Dialogue : public ::testing::Test {
 protected:
  void SetUp() override { tokenizer_ = load_tokenizer(kDialogueModel); }

  [[nodiscard]] DialogueForm plain() const {
    return plain_dialogue([this](const std::string& text) { return tokenizer_->encode(text); });
  }
  [[nodiscard]] DialogueForm chat() const {
    return {.encode =
                [this](std::span<const ChatMessage> messages) {
                  const auto [before, opening] = split_opening(messages);
                  return tokenizer_->encode(
                      engine::render_chat(kDialogueModel, before) + std::string(opening),
                      {.add_special = false, .parse_special = true});
                },
            .stop = {}};
  }
  [[nodiscard]] Haystack hay() const {
    return {*tokenizer_, "It rained all day. Nobody went out, and the dog slept by the fire."};
  }
  [[nodiscard]] std::string text_of(const Question& question) const {
    return tokenizer_->decode(question.prompt, /*skip_special=*/false);
  }

  std::unique_ptr<const Tokenizer> tokenizer_;
};

}  // namespace winnow::eval
