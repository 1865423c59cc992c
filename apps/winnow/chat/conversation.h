// A chat's messages, and the tokens that the model has read and written of them.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "winnow/llm.h"

namespace winnow::cli {

class Conversation {
 public:
  /// `llm` must outlive this. An empty `system`: no system message.
  Conversation(const Llm& llm, std::string system);

  /// Adds a question.
  void ask(std::string question);
  /// The tokens that ask for an answer to the last question. They begin with those that the model
  /// has read and written before, where the chat template lets them: then its cache is of use.
  [[nodiscard]] std::vector<std::int32_t> prompt();
  /// Adds what answers the tokens of the last prompt().
  void answer(const Sample& sample);

  [[nodiscard]] bool empty() const { return turns_.empty(); }
  [[nodiscard]] int turns() const { return static_cast<int>(turns_.size()); }
  [[nodiscard]] const std::string& system() const { return system_; }
  [[nodiscard]] std::string last_question() const { return turns_.back().question; }
  /// Removes the last question, and its answer if it has one. There must be one.
  void undo() { turns_.pop_back(); }
  void clear() { turns_.clear(); }
  /// Begins anew under another system message.
  void set_system(std::string system);

  /// {"messages": [{"role": ..., "content": ...}, ...]}: what `winnow tokenize --messages` and the
  /// server take as well.
  [[nodiscard]] nlohmann::ordered_json to_json() const;
  /// Takes a list of messages, or an object that has one. Error, and nothing is changed, unless
  /// users and assistant take turns. `where` stands for it in messages.
  void read_json(const nlohmann::json& json, const std::string& where);

 private:
  struct Turn {
    std::string question;
    std::string answer = {};
    bool answered = false;
    // Prompt and answer as the model had them; empty when the answer came from a file.
    std::string text = {};
    std::vector<std::int32_t> tokens = {};
  };

  [[nodiscard]] std::vector<ChatMessage> messages() const;

  const Llm* llm_;
  std::string system_;
  std::vector<Turn> turns_;
};

}  // namespace winnow::cli
