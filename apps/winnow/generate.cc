// winnow generate: text from a prompt, or a chat.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/generation_report.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "apps/winnow/run_settings.h"
#include "base/error.h"
#include "base/stopwatch.h"
#include "checkpoint/json_text.h"
#include "engine/request.h"
#include "tokenizer/tokenizer.h"
#include "train/line_reader.h"
#include "train/self_generated.h"

namespace winnow::cli {
namespace {

struct GenerateCommand {
  LoadOptions load;
  GenerateOptions generate;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool chat = false;
  std::string system;
  bool no_think = false;
  bool json = false;
  std::string data_out;
  std::string prompts;
  bool keep_correct = false;
  std::int64_t documents = 1000;
};

void check(const GenerateCommand& command) {
  engine::validate(command.generate.sampling);
  if (!command.data_out.empty()) {
    require(!command.prompt && command.prompt_file.empty() && !command.chat && !command.json,
            "--data-out: takes its prompts from --prompts");
    require(command.system.empty(), "--data-out: --system does not go with it");
    require(!command.no_think, "--data-out: --no-think does not go with it");
    require(command.documents >= 1, "--documents {}: expected 1 or more", command.documents);
    require(command.generate.sampling.temperature > 0.0,
            "--data-out: temperature 0 would write the same document every time: add "
            "--temperature 1");
    require(command.generate.samples == 1 && command.generate.stop.empty(),
            "--data-out: --n and --stop do not go with it");
    require(command.generate.prompt_cache.empty(), "--data-out: has no --prompt-cache");
    require(!command.keep_correct || !command.prompts.empty(),
            "--keep-correct: --prompts is needed, with an answer to each");
    return;
  }
  require(command.prompts.empty(), "--prompts goes with --data-out only");
  require(!command.keep_correct, "--keep-correct goes with --data-out and --prompts only");
  require(!command.generate.prompt_cache.empty() || !command.generate.prompt_cache_read_only,
          "--prompt-cache-ro goes with --prompt-cache only");
  const int prompts = (command.prompt ? 1 : 0) + (command.prompt_file.empty() ? 0 : 1);
  require(prompts <= 1, "--prompt and --prompt-file exclude each other");
  require(prompts == 1 || command.chat, "one of --prompt, --prompt-file and --chat is needed");
  require(command.chat || command.system.empty(), "--system goes with --chat only");
  require(command.chat || !command.no_think, "--no-think goes with --chat only");
}

// Prints text as it is generated; shows a progress bar while the prompt is read.
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

void warn_of_prompt_cache(const Generation& result) {
  if (!result.prompt_cache_warning.empty()) {
    print_note("winnow: warning: --prompt-cache " + result.prompt_cache_warning + "\n");
  }
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
    require(sample.finish_reason != "not_numbers", "after {} prompt and {} generated tokens {}",
            result.prompt_tokens, sample.token_ids.size(), engine::kNotNumbers);
  }
}

int answer(Llm& llm, const GenerateCommand& command, const std::string& prompt,
           const GenerateOptions& options) {
  const bool stream = !command.json && options.samples == 1;
  const Generation result = generate_streaming(llm, prompt, options, stream);
  if (command.json) {
    print_json(generation_json(result));
    warn_of_prompt_cache(result);
    require_complete(result);
    return interrupted() ? kInterrupted : kSuccess;
  }
  if (stream) {
    print_now("\n");
  } else {
    print_samples(result);
  }
  print_now("");
  warn_of_prompt_cache(result);
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

std::vector<train::DocumentPrompt> read_prompts(const GenerateCommand& command) {
  std::vector<train::DocumentPrompt> prompts;
  if (command.prompts.empty()) {
    return prompts;
  }
  train::LineReader reader(command.prompts);
  for (std::string line; reader.next(line);) {
    const auto json = json_or_discarded<nlohmann::json>(line);
    const auto has_text = [&json](const char* name) {
      return json.is_object() && json.contains(name) && json.at(name).is_string();
    };
    require(has_text("prompt"), "{}:{}: expected an object with a \"prompt\"", command.prompts,
            reader.number());
    prompts.push_back({.text = json.at("prompt").get<std::string>()});
    if (command.keep_correct) {
      require(has_text("answer"), "{}:{}: expected an \"answer\", a text, for --keep-correct",
              command.prompts, reader.number());
      prompts.back().answer = json.at("answer").get<std::string>();
    }
  }
  require(!prompts.empty(), "{}: no prompts", command.prompts);
  return prompts;
}

std::string outcome(const GenerateCommand& command, const train::SelfGeneratedCounts& counts,
                    double seconds) {
  const char* const then = interrupted() ? "; the same command goes on" : "";
  if (counts.finished == 0) {
    return fmt::format("{}: no document was finished{}\n", command.data_out, then);
  }
  const std::string documents = command.keep_correct
                                    ? fmt::format("{} of {} documents, which state their answers",
                                                  grouped(counts.kept), grouped(counts.finished))
                                    : fmt::format("{} documents", grouped(counts.kept));
  return fmt::format(
      "{}: {}{}; {} tokens, {} tok/s{}\n", command.data_out, documents,
      counts.earlier == 0 ? "" : fmt::format(", {} by earlier runs", grouped(counts.earlier)),
      grouped(counts.tokens),
      grouped(static_cast<long long>(static_cast<double>(counts.tokens) / seconds)), then);
}

int write_data(const GenerateCommand& command) {
  train::SelfGeneratedOptions options;
  options.documents = command.documents;
  options.prompts = read_prompts(command);
  options.max_tokens = command.generate.max_tokens;
  options.sampling = command.generate.sampling;
  train::DocumentFile file(command.data_out);
  const auto model = engine::load_model(command.load);
  const auto tokenizer = load_tokenizer(command.load.model);
  options.run = describe_run(command.load, *model);
  if (command.load.context) {
    options.run["context"] = *command.load.context;
  }
  ProgressBar bar("writing", command.documents, "documents");
  options.on_progress = [&bar](const train::SelfGeneratedCounts& counts) {
    bar.update(counts.finished, counts.tokens);
    return !interrupted();
  };
  const Stopwatch watch;
  const train::SelfGeneratedCounts counts =
      train::write_self_generated(*model, *tokenizer, options, file);
  bar.clear();
  print_note(outcome(command, counts, watch.seconds()));
  return interrupted() ? kInterrupted : kSuccess;
}

int run_generate(const GenerateCommand& command) {
  check(command);
  if (!command.data_out.empty()) {
    return write_data(command);
  }
  GenerateOptions options = command.generate;
  const bool from_file = !command.prompt_file.empty();
  const std::string text = command.prompt ? *command.prompt
                           : from_file    ? read_file(command.prompt_file)
                                          : read_standard_input();
  require_utf8(command.prompt ? "--prompt"
               : from_file    ? "--prompt-file " + command.prompt_file
                              : "standard input",
               text);
  Llm llm = Llm::load(command.load);
  if (!command.chat) {
    return answer(llm, command, text, options);
  }
  options.add_special = false;  // the template writes BOS itself
  std::vector<ChatMessage> messages = opening(command);
  messages.push_back({"user", text});
  return answer(llm, command, llm.render_chat(messages, thinking_of(command.no_think)), options);
}

void add_answer_flags(CLI::App& command, GenerateOptions& options) {
  const FlagGroup group(command, "Sampling");
  add_sampling_flags(group, options.sampling);
  group.option("--n", options.samples, "N", "Samples per prompt");
  group
      .open_option("--stop", options.stop, "TEXT",
                   "End the text before this string; may be given several times (default: none)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  group.flag("--ignore-eos", options.ignore_eos,
             "Continue past the checkpoint's end-of-text tokens (default: off)");
}

}  // namespace

void add_generate(CLI::App& app, Run& run) {
  std::shared_ptr<GenerateCommand> options;
  CLI::App* command = add_command(app, run, "generate",
                                  "Generates text from a prompt; text goes to standard output, a "
                                  "summary of the cache to standard error",
                                  options, run_generate);
  const FlagGroup flags(*command);
  flags.open_option("--prompt", options->prompt, "TEXT", "The prompt (no default)");
  flags.open_option("--prompt-file", options->prompt_file, "FILE",
                    "A file with the prompt; - is standard input (no default)");
  flags.flag("--chat", options->chat,
             "The prompt is a user's message for the model's chat template; without "
             "--prompt it is read from standard input; see also winnow chat (default: off)");
  flags.open_option("--system", options->system, "TEXT",
                    "--chat: the system prompt (default: none)");
  add_no_think_flag(flags, options->no_think);
  flags.option("--max-tokens", options->generate.max_tokens, "N", "Most new tokens");
  flags.open_option("--prompt-cache", options->generate.prompt_cache, "FILE",
                    "A file that keeps the prompt's cache; a beginning of this prompt that it "
                    "holds is not computed again (default: none)");
  flags.flag("--prompt-cache-ro", options->generate.prompt_cache_read_only,
             "--prompt-cache: read the file, do not write it (default: off)");
  flags.flag("--json", options->json,
             "Print text, token ids, cache and speed as JSON (default: off)");
  add_answer_flags(*command, options->generate);
  const FlagGroup data(*command, "Training data");
  CLI::Option* const data_out =
      data.open_option("--data-out", options->data_out, "FILE",
                       "Write JSON lines for winnow retrofit: documents that the model samples by "
                       "itself, many at once (no default)");
  data.option("--documents", options->documents, "N", "--data-out: how many")->needs(data_out);
  data.open_option("--prompts", options->prompts, "FILE",
                   "--data-out: JSON lines with a \"prompt\" each, used in turn (default: "
                   "documents start with the beginning-of-text token)");
  data.flag("--keep-correct", options->keep_correct,
            "--prompts: each also has an \"answer\"; only documents that state it are written, by "
            "their last \\boxed{}, \"answer is\" or number (default: off)");
  add_load_flags(*command, options->load);
  add_speculation_flags(*command, options->load);
}

}  // namespace winnow::cli
