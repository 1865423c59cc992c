// winnow generate: text from a prompt, or a chat.
#include <fmt/format.h>

#include <iostream>
#include <optional>

#include "base/error.h"
#include "command.h"
#include "flags.h"
#include "generation_report.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"

namespace winnow::cli {
namespace {

struct GenerateCommand {
  LoadOptions load;
  GenerateOptions generate;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool chat = false;
  std::string system;
  bool json = false;
};

void check(const GenerateCommand& command) {
  const int prompts = (command.prompt ? 1 : 0) + (command.prompt_file.empty() ? 0 : 1);
  require(prompts <= 1, "--prompt and --prompt-file exclude each other");
  require(prompts == 1 || command.chat, "one of --prompt, --prompt-file and --chat is needed");
  require(command.chat || command.system.empty(), "--system goes with --chat only");
}

// Prints text as it comes; the progress bar stands in for it while the prompt is read.
Generation generate_streaming(Llm& llm, const std::string& prompt, GenerateOptions options,
                              bool stream) {
  std::optional<ProgressBar> bar;
  options.on_step = [&](const Progress& progress) {
    if (!bar && progress.prompt_done < progress.prompt_tokens) {
      bar.emplace("prompt", progress.prompt_tokens, "tokens");
    }
    if (bar && progress.generated == 0) {
      bar->update(progress.prompt_done);
    }
    return !interrupted();
  };
  TextCallback on_text;
  if (stream) {
    on_text = [&](int /*sample*/, std::string_view text) {
      if (bar) {
        bar->clear();
      }
      print_now(text);
    };
  }
  return llm.generate(prompt, options, on_text);
}

void print_samples(const Generation& result) {
  for (std::size_t i = 0; i < result.samples.size(); ++i) {
    print(fmt::format("--- sample {}\n{}\n", i, result.samples[i].text));
  }
}

void require_complete(const Generation& result) {
  for (const auto& sample : result.samples) {
    require(sample.finish_reason != "out_of_memory",
            "the cache is full after {} prompt and {} generated tokens: allow it more memory with "
            "--kv-gib",
            result.prompt_tokens, sample.token_ids.size());
  }
}

int answer(Llm& llm, const GenerateCommand& command, const std::string& prompt,
           const GenerateOptions& options) {
  const bool stream = !command.json && options.samples == 1;
  const Generation result = generate_streaming(llm, prompt, options, stream);
  if (command.json) {
    print_json(to_json(result));
    require_complete(result);
    return interrupted() ? kInterrupted : kSuccess;
  }
  if (stream) {
    print_now("\n");
  } else {
    print_samples(result);
  }
  print_now("");
  require_complete(result);
  print_note(summary(result, llm.info()) + "\n");
  return interrupted() ? kInterrupted : kSuccess;
}

std::vector<ChatMessage> opening(const GenerateCommand& command) {
  if (command.system.empty()) {
    return {};
  }
  return {{"system", command.system}};
}

// Several turns on a terminal; an empty line or the end of input ends the chat.
int converse(Llm& llm, const GenerateCommand& command, const GenerateOptions& options) {
  std::vector<ChatMessage> messages = opening(command);
  for (std::string line; !interrupted();) {
    print_now("> ");
    if (!std::getline(std::cin, line) || line.empty()) {
      break;
    }
    messages.push_back({"user", line});
    const Generation result =
        generate_streaming(llm, llm.render_chat(messages), options, /*stream=*/true);
    print_now("\n");
    require_complete(result);
    print_note(summary(result, llm.info()) + "\n");
    messages.push_back({"assistant", result.samples.front().text});
  }
  return interrupted() ? kInterrupted : kSuccess;
}

int run_generate(const GenerateCommand& command) {
  check(command);
  GenerateOptions options = command.generate;
  const bool from_file = !command.prompt_file.empty();
  const bool repl = command.chat && !command.prompt && !from_file && !command.json &&
                    options.samples == 1 && input_is_terminal();
  std::string text;
  if (!repl) {
    text = command.prompt ? *command.prompt
           : from_file    ? read_file(command.prompt_file)
                          : read_standard_input();
  }
  Llm llm = Llm::load(command.load);
  if (!command.chat) {
    return answer(llm, command, text, options);
  }
  options.add_special = false;  // the template writes BOS itself
  if (repl) {
    return converse(llm, command, options);
  }
  std::vector<ChatMessage> messages = opening(command);
  messages.push_back({"user", text});
  return answer(llm, command, llm.render_chat(messages), options);
}

void add_sampling_flags(CLI::App& command, GenerateOptions& options) {
  const char* const group = "Sampling";
  SamplingOptions& sampling = options.sampling;
  command.add_option("--temperature", sampling.temperature, "0: always the most likely token")
      ->capture_default_str()
      ->type_name("X")
      ->group(group);
  command.add_option("--top-p", sampling.top_p, "Only the smallest set with this probability")
      ->capture_default_str()
      ->type_name("P")
      ->group(group);
  command.add_option("--top-k", sampling.top_k, "Only the K most likely tokens; 0: all")
      ->capture_default_str()
      ->type_name("K")
      ->group(group);
  command
      .add_option("--min-p", sampling.min_p,
                  "Only tokens at least this fraction as likely as the most likely one")
      ->capture_default_str()
      ->type_name("P")
      ->group(group);
  command
      .add_option("--repetition-penalty", sampling.repetition_penalty,
                  "Divides the positive logits of tokens seen before")
      ->capture_default_str()
      ->type_name("X")
      ->group(group);
  command.add_option("--seed", sampling.seed, "Of the random choices")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command.add_option("--n", options.samples, "Samples that continue the one prompt")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      .add_option("--stop", options.stop,
                  "End the text before this string; may be given several times (default: none)")
      ->type_name("TEXT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group(group);
  command
      .add_flag("--ignore-eos", options.ignore_eos,
                "Go on after the checkpoint's end-of-text tokens (default: off)")
      ->group(group);
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  std::shared_ptr<GenerateCommand> options;
  CLI::App* command = add_command(app, run, "generate",
                                  "Generates text from a prompt; text goes to standard output, a "
                                  "summary of the cache to standard error",
                                  options, run_generate);
  command->add_option("--prompt", options->prompt, "The prompt (no default)")->type_name("TEXT");
  command
      ->add_option("--prompt-file", options->prompt_file,
                   "A file with the prompt; - is standard input (no default)")
      ->type_name("FILE");
  command->add_flag("--chat", options->chat,
                    "The prompt is a user's message for the model's chat template; without "
                    "--prompt it is read from standard input, on a terminal turn by turn "
                    "(default: off)");
  command->add_option("--system", options->system, "--chat: the system prompt (default: none)")
      ->type_name("TEXT");
  command->add_option("--max-tokens", options->generate.max_tokens, "Most new tokens")
      ->capture_default_str()
      ->type_name("N");
  command->add_flag("--json", options->json,
                    "Print text, token ids, cache and speed as JSON (default: off)");
  add_sampling_flags(*command, options->generate);
  add_load_flags(*command, options->load);
}

}  // namespace winnow::cli
