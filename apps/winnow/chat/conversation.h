// A chat's messages, and their tokens as the model read and wrote them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/replaceable_file.h"
#include "winnow/llm.h"

namespace winnow::cli {

/// A conversation as a file: what Conversation::to_json() returns.
FileKind conversation_file();

class Conversation {
 public:
  /// `llm` must outlive this. An empty `system`: no system message.
  Conversation(const Llm& llm, std::string system, Thinking thinking);

  /// Adds a question.
  void ask(std::string question);
  /// The prompt for an answer to the last question. If the chat template allows it, it begins with
  /// the tokens that the model has read and written before, so that its cache can be reused.
  [[nodiscard]] std::vector<std::int32_t> prompt();
  /// Adds the answer to the last prompt().
  void answer(const Sample& sample);

  [[nodiscard]] bool empty() const { return turns_.empty(); }
  [[nodiscard]] int turns() const { return static_cast<int>(turns_.size()); }
  [[nodiscard]] const std::string& system() const { return system_; }
  [[nodiscard]] std::string last_question() const { return turns_.back().question; }
  /// Removes the last question, and its answer if it has one. There must be one.
  void undo() { turns_.pop_back(); }
  void clear() { turns_.clear(); }
  /// Clears the chat and sets another system message.
  void set_system(std::string system);

  /// {"messages": [{"role": ..., "content": ...}, ...]}, which `winnow tokenize --messages` and the
  /// server accept as well.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  /// Reads a list of messages, or an object that has one. Error, without any change, unless
  /// user and assistant alternate. `where`: the name of `json` in messages.
  void read_json(const nlohmann::json& json, const std::string& where);

 private:
  struct Turn {
    std::string question;
    std::string answer = {};
    bool answered = false;
    // Prompt and answer as the model saw them; empty if the answer came from a file.
    std::string text = {};
    std::vector<std::int32_t> tokens = {};
  };

  [[nodiscard]] std::vector<ChatMessage> messages() const;

  const Llm* llm_;
  std::string system_;
  Thinking thinking_;
  std::vector<Turn> turns_;
};

}  // namespace winnow::cli
