// winnow chat: a chat on a terminal.
#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "apps/winnow/chat/chat.h"
#include "apps/winnow/chat/input.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "engine/request.h"
#include "server/sampling_defaults.h"

namespace winnow::cli {
namespace {

struct ChatFlags {
  LoadOptions load;
  GenerateOptions generate;
  std::string system;
  bool no_think = false;
  std::optional<std::string> history;
  std::string generation_config = "auto";
  const CLI::App* command = nullptr;
};

// The user's directory for state files; empty: there is none.
std::filesystem::path default_history() {
  namespace fs = std::filesystem;
  const char* const state = std::getenv("XDG_STATE_HOME");
  const char* const home = std::getenv("HOME");
  if ((state == nullptr || *state == '\0') && home == nullptr) {
    return {};
  }
  const fs::path folder =
      (state != nullptr && *state != '\0' ? fs::path(state) : fs::path(home) / ".local/state") /
      "winnow";
  std::error_code failed;
  fs::create_directories(folder, failed);
  return failed ? fs::path() : folder / "chat_history";
}

// Empty: nothing is kept. Throws Error if the file that was named holds something else.
std::filesystem::path history_file(const ChatFlags& flags) {
  if (!input_has_history() || flags.history == "none") {
    return {};
  }
  std::filesystem::path file =
      flags.history ? std::filesystem::path(*flags.history) : default_history();
  try {
    if (!file.empty()) {
      require_history(file);
    }
  } catch (const Error& error) {
    if (flags.history) {
      throw;
    }
    // Nobody named the file: a chat is possible without it.
    print_note(fmt::format("winnow: warning: no history is kept: {}\n", error.what()));
    return {};
  }
  return file;
}

// Reports at the start, not after the first message, that the template or the tokenizer does not
// support the chat.
void check_first_message(Llm& llm, const std::string& system, Thinking thinking) {
  Conversation conversation(llm, system, thinking);
  conversation.ask("?");
  std::ignore = conversation.prompt();
}

std::string greeting(const ChatFlags& flags, const ModelInfo& info) {
  return fmt::format(
      "{}: {}, {} parameters; {} cache of {} entries. /help lists commands.\n", flags.load.model,
      info.family, readable_count(static_cast<double>(info.parameters)), info.cache, info.kv_dtype);
}

// The model's recommended settings, overridden by flags.
GenerateOptions answer_options(const ChatFlags& flags) {
  GenerateOptions options = flags.generate;
  if (!uses_generation_config(flags.generation_config)) {
    return options;
  }
  const SamplingOptions& given = flags.generate.sampling;
  options.sampling = server::read_sampling_defaults(flags.load.model, given);
  const auto keep = [&](const char* flag, auto SamplingOptions::*value) {
    if (flags.command->count(flag) > 0) {
      options.sampling.*value = given.*value;
    }
  };
  keep("--temperature", &SamplingOptions::temperature);
  keep("--top-p", &SamplingOptions::top_p);
  keep("--top-k", &SamplingOptions::top_k);
  keep("--min-p", &SamplingOptions::min_p);
  keep("--repetition-penalty", &SamplingOptions::repetition_penalty);
  return options;
}

int run_chat(const ChatFlags& flags) {
  const GenerateOptions options = answer_options(flags);
  engine::validate(options.sampling);  // before the model is loaded, which may take long
  require(options.max_tokens >= 1, "--max-tokens {}: expected 1 or more", options.max_tokens);
  const std::filesystem::path history = history_file(flags);
  LoadOptions load = flags.load;
  load.reuse_prefixes = true;
  Llm llm = Llm::load(load);
  const Thinking thinking = thinking_of(flags.no_think);
  check_first_message(llm, flags.system, thinking);
  Chat chat(llm, options, flags.system, thinking);
  const auto input = open_input(history, Chat::command_names());
  const bool converses = input_is_terminal();
  if (converses) {
    print_note(greeting(flags, llm.info()));
  }
  while (true) {
    const InputLine message = read_message(*input);
    const bool ends = message.kind == InputLine::Kind::end ||
                      (message.kind == InputLine::Kind::text && !chat.take(message.text));
    if (ends || (chat.unanswered() && !converses)) {  // later messages would lack its answer
      return chat.failed() && !converses ? kFailure : kSuccess;
    }
    if (interrupted()) {
      if (!converses || !interrupted_by_keyboard()) {
        return kInterrupted;
      }
      forget_interrupt();
    }
  }
}

}  // namespace

void add_chat(CLI::App& app, Run& run) {
  std::shared_ptr<ChatFlags> flags;
  CLI::App* command = add_command(
      app, run, "chat",
      "Chats on a terminal, with history, commands (/help) and a live bar of the cache; "
      "elsewhere every line of standard input is a message",
      flags, run_chat);
  const FlagGroup own(*command);
  own.open_option("--system", flags->system, "TEXT", "The system message (default: none)");
  add_no_think_flag(own, flags->no_think);
  flags->generate.max_tokens = 1024;
  own.option("--max-tokens", flags->generate.max_tokens, "N", "Most tokens of an answer");
  own.open_option("--history", flags->history, "FILE",
                  "Where what was typed is kept for the next chat; none: nowhere (default: "
                  "~/.local/state/winnow/chat_history)");
  flags->generate.sampling.temperature = 0.7;
  const FlagGroup sampling(*command, "Sampling");
  add_sampling_flags(sampling, flags->generate.sampling);
  add_generation_config_flag(sampling, flags->generation_config);
  flags->command = command;
  add_load_flags(*command, flags->load);
  add_speculation_flags(*command, flags->load);
}

}  // namespace winnow::cli
