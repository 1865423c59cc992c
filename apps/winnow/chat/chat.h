// A chat: answers to messages, and the commands between them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/winnow/chat/conversation.h"
#include "winnow/llm.h"

namespace winnow::cli {

class Chat {
 public:
  /// `llm` must outlive this.
  Chat(Llm& llm, const GenerateOptions& options, std::string system, Thinking thinking);

  /// Answers a message, or runs a command. False after /quit. Errors are printed,
  /// and the chat continues.
  bool take(const std::string& message);
  /// Whether a command or a message has failed so far.
  [[nodiscard]] bool failed() const { return failed_; }
  /// Whether a message got no answer.
  [[nodiscard]] bool unanswered() const { return unanswered_; }

  /// The names of all commands: "/help", ...
  static std::vector<std::string> command_names();

 private:
  // `run` gets the text after the name.
  struct Command {
    std::string_view name;
    std::string_view argument;
    std::string_view help;
    void (Chat::*run)(const std::string& argument);
  };
  static std::span<const Command> commands();

  void obey(const std::string& line);
  void answer();

  void help(const std::string& argument);
  void clear(const std::string& argument);
  void system(const std::string& text);
  void set(const std::string& assignment);
  void read(const std::string& argument);
  void save(const std::string& file);
  void load(const std::string& file);
  void stats(const std::string& argument);
  void retry(const std::string& argument);
  void undo(const std::string& argument);
  void quit(const std::string& argument);

  Llm& llm_;
  GenerateOptions options_;
  Conversation conversation_;
  std::optional<Generation> last_;
  std::uint64_t answers_ = 0;  // each answer has its own seed
  bool open_ = true;
  bool failed_ = false;
  bool unanswered_ = false;
};

}  // namespace winnow::cli
