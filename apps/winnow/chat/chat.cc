#include "apps/winnow/chat/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <utility>

#include "apps/winnow/chat/live_answer.h"
#include "apps/winnow/chat/settings.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/heat_map.h"
#include "apps/winnow/screen.h"
#include "base/error.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "engine/request.h"

namespace winnow::cli {
namespace {

constexpr std::string_view kBlank = " \t\n";

std::string trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos
             ? std::string()
             : std::string(text.substr(begin, text.find_last_not_of(kBlank) + 1 - begin));
}

// How answers may become longer than one of so many tokens.
std::string cut_off_note(std::size_t tokens) {
  return fmt::format("cut off at {} tokens; {} {} allows more", tokens,
                     input_is_terminal() ? "/set max-tokens" : "--max-tokens", 2 * tokens);
}

// A remark on how an answer ended; empty if there is nothing to say. `tokens`: of the chat.
std::string ending_note(const Sample& sample, int tokens, int positions) {
  if (sample.finish_reason == "length" && tokens >= positions) {
    return fmt::format("the chat fills the model's {} positions: /undo, or /clear",
                       grouped(positions));
  }
  if (sample.finish_reason == "length") {
    return cut_off_note(sample.token_ids.size());
  }
  if (sample.finish_reason == "out_of_memory") {
    return "the cache is full: allow it more memory with --kv-gib, or /clear the chat";
  }
  return sample.finish_reason == "not_numbers" ? std::string(engine::kNotNumbers) : "";
}

}  // namespace

Chat::Chat(Llm& llm, const GenerateOptions& options, std::string system, Thinking thinking)
    : llm_(llm), options_(options), conversation_(llm, std::move(system), thinking) {
  options_.add_special = false;  // the template writes BOS itself
}

std::span<const Chat::Command> Chat::commands() {
  static constexpr std::array<Command, 13> kCommands{{
      {"/help", "", "this list", &Chat::help},
      {"/clear", "", "begin a new chat", &Chat::clear},
      {"/system", "[TEXT]", "begin a new chat under this system message; without: show it",
       &Chat::system},
      {"/set", "[NAME VALUE]", "how answers are sampled; without: show it", &Chat::set},
      {"/read", "FILE [TEXT]", "send a file's text, then TEXT, as one message", &Chat::read},
      {"/retry", "", "answer the last message again", &Chat::retry},
      {"/undo", "", "forget the last message and its answer", &Chat::undo},
      {"/save", "FILE", "write the messages as JSON", &Chat::save},
      {"/load", "FILE", "go on with the messages of a file", &Chat::load},
      {"/stats", "", "the last answer's speed, and what each head's cache holds", &Chat::stats},
      {"/quit", "", "end (also Ctrl-D)", &Chat::quit},
      {"/exit", "", "the same", &Chat::quit},
      {"/bye", "", "the same", &Chat::quit},
  }};
  return kCommands;
}

std::vector<std::string> Chat::command_names() {
  std::vector<std::string> names;
  std::ranges::transform(commands(), std::back_inserter(names),
                         [](const Command& command) { return std::string(command.name); });
  return names;
}

bool Chat::take(const std::string& message) {
  const bool is_command = message.starts_with('/') && !message.starts_with("//");
  const bool asks = !is_command || message.starts_with("/read");
  try {
    if (is_command) {
      obey(message);
    } else if (!trimmed(message).empty()) {
      conversation_.ask(message.substr(message.starts_with("//") ? 1 : 0));
      answer();
    }
  } catch (const std::runtime_error& error) {
    print_note(fmt::format("winnow: error: {}\n", error.what()));
    failed_ = true;
    unanswered_ = unanswered_ || asks;
  }
  return open_;
}

void Chat::obey(const std::string& line) {
  const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
  const std::string name = line.substr(0, end);
  const auto found = std::ranges::find(commands(), name, &Command::name);
  require(found != commands().end(),
          "{}: no such command; /help lists them, // begins a message with a slash", name);
  const std::string argument = trimmed(std::string_view(line).substr(end));
  require(argument.empty() || !found->argument.empty(), "{}: takes nothing, found {}", name,
          in_quotes(argument));
  (this->*found->run)(argument);
}

// Removes a question that cannot be answered.
void Chat::answer() {
  try {
    const std::vector<std::int32_t> prompt = conversation_.prompt();
    GenerateOptions options = options_;
    options.sampling.seed += answers_++;
    const int room = llm_.info().max_positions - static_cast<int>(prompt.size());
    require(
        room > 0,
        "the chat would have {} tokens, the model has {} positions: send less, /undo the answer "
        "before, or /clear the chat",
        prompt.size(), llm_.info().max_positions);
    options.max_tokens = std::min(options.max_tokens, room);
    last_ = answer_live(llm_, prompt, options);
  } catch (...) {
    conversation_.undo();
    throw;
  }
  const Sample& sample = last_->samples.front();
  conversation_.answer(sample);
  print_note(answer_summary(*last_, llm_.info().window) + "\n");
  const int tokens = last_->prompt_tokens + static_cast<int>(sample.token_ids.size());
  if (const std::string note = ending_note(sample, tokens, llm_.info().max_positions);
      !note.empty()) {
    print_note(fmt::format("winnow: {}\n", note));
  }
}

void Chat::help(const std::string& /*argument*/) {
  for (const Command& command : commands()) {
    print(fmt::format("  {:<22} {}\n", fmt::format("{} {}", command.name, command.argument),
                      command.help));
  }
  print_now(
      "Alt-Enter, or \\ at the end of a line, starts another line. Ctrl-C stops an answer.\n");
}

void Chat::clear(const std::string& /*argument*/) {
  conversation_.clear();
  print_note("a new chat begins\n");
}

void Chat::system(const std::string& text) {
  if (text.empty()) {
    print_now(conversation_.system().empty() ? "There is no system message.\n"
                                             : conversation_.system() + "\n");
    return;
  }
  conversation_.set_system(text);
  print_note("a new chat begins, under this system message\n");
}

void Chat::set(const std::string& assignment) {
  if (!assignment.empty()) {
    change_setting(options_, assignment);
    return;
  }
  print_now(list_settings(options_));
}

void Chat::read(const std::string& argument) {
  const bool quoted = argument.starts_with('"');  // a name with blanks
  const std::size_t begin = quoted ? 1 : 0;
  const std::size_t end = std::min(
      quoted ? argument.find('"', begin) : argument.find_first_of(kBlank), argument.size());
  const std::string file = argument.substr(begin, end - begin);
  require(!file.empty() && file != "-", "/read: a file is missing");
  const std::string text = read_utf8("/read", file);
  require(!trimmed(text).empty(), "{}: there is no text in it", file);
  const std::string question =
      trimmed(std::string_view(argument).substr(std::min(end + begin, argument.size())));
  conversation_.ask(question.empty() ? text : text + "\n\n" + question);
  answer();
}

void Chat::save(const std::string& file) {
  require(!file.empty(), "/save: a file is missing");
  require_replaceable(file, conversation_file());
  write_text_file(file, json_text(conversation_.to_json(), 2) + "\n");
  print_note(fmt::format("{}: saved, questions and answers: {}\n", file, conversation_.turns()));
}

void Chat::load(const std::string& file) {
  require(!file.empty(), "/load: a file is missing");
  conversation_.read_json(parse_json(read_text_file(file), file), file);
  print_note(fmt::format("{}: read, questions and answers: {}\n", file, conversation_.turns()));
}

void Chat::stats(const std::string& /*argument*/) {
  require(last_.has_value(), "/stats: there is no answer yet");
  const Sample& sample = last_->samples.front();
  print(answer_summary(*last_, llm_.info().window) + "\n");
  if (sample.kv.per_layer_head.empty()) {
    return;
  }
  std::vector<std::int32_t> entries;
  for (const std::vector<int>& layer : sample.kv.per_layer_head) {
    entries.insert(entries.end(), layer.begin(), layer.end());
  }
  const int tokens = last_->prompt_tokens + static_cast<int>(sample.token_ids.size());
  print(fmt::format("prefill {:.0f} tokens/s; {} of {} positions; entries that each head holds:\n",
                    last_->prefill_tokens_per_s, grouped(tokens),
                    grouped(llm_.info().max_positions)));
  print_now(cache_picture(entries, llm_.info().kv_heads, tokens, output_takes_escapes()));
}

void Chat::retry(const std::string& /*argument*/) {
  require(!conversation_.empty(), "/retry: there is no message yet");
  if (options_.sampling.temperature == 0.0) {
    print_note("winnow: at temperature 0 the answer stays the same: /set temperature 0.7\n");
  }
  const std::string question = conversation_.last_question();
  conversation_.undo();
  conversation_.ask(question);
  answer();
}

void Chat::undo(const std::string& /*argument*/) {
  require(!conversation_.empty(), "/undo: there is no message yet");
  print_note(fmt::format("forgotten: {}\n", in_quotes(conversation_.last_question())));
  conversation_.undo();
}

void Chat::quit(const std::string& /*argument*/) {
  open_ = false;
}

}  // namespace winnow::cli
