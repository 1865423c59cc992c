#include "apps/winnow/eval/run.h"

#include <fmt/chrono.h>
#include <exception>

#include <cmath>
#include <ctime>
#include <fstream>
#include <iterator>
#include <thread>

#include "api/llm_chat.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "base/build_commit.h"
#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json_text.h"
#include "eval/suite/dialogue.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

// The journal of results file `out`.
std::filesystem::path journal_path(const std::string& out) {
  const std::filesystem::path path(out);
  require(path.extension() == ".json", "--out {}: expected a name that ends in .json", out);
  return std::filesystem::path(path).replace_extension(".jsonl");
}

std::vector<std::string> command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(file), {}};
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    words.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!words.empty()) {
    words.front() = "winnow";
  }
  return words;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "";
}

}  // namespace

void add_eval_flags(CLI::App& command, EvalFlags& flags) {
  const FlagGroup own(command);
  own.option("--seed", flags.seed, "S", "Seed of everything that is drawn");
  own.option("--batch", flags.batch, "N", "Sequences at once");
  own.open_option("--out", flags.out, "FILE.json",
                  "Also write the results to FILE.json, and every finished case to FILE.jsonl; the "
                  "same command continues an interrupted run (no default)");
  add_json_flag(own, flags.json);
  add_load_flags(command, flags.load);
}

void add_text_flag(const FlagGroup& group, std::string& text) {
  group.open_option("--text", text, "FILE", "The text file; - is standard input (no default)")
      ->required();
}

void add_lengths_flag(const FlagGroup& group, std::vector<int>& lengths) {
  group.option("--lengths", lengths, "N", "Tokens of prompt and answer: 1024,2048 ...")
      ->delimiter(',');
}

void add_length_flags(const FlagGroup& group, std::vector<int>& lengths, int& max_tokens) {
  add_lengths_flag(group, lengths);
  group.option("--max-tokens", max_tokens, "N", "Most tokens of an answer");
}

void add_chat_flag(CLI::App& command, EvalFlags& flags) {
  FlagGroup(command).flag("--chat", flags.chat,
                          "Ask through the model's chat template (default: plain text)");
}

std::string with_error(double mean, double error, int digits) {
  const std::string text = fmt::format("{:.{}f}", mean, digits);
  return std::isnan(error) ? text : fmt::format("{} +- {:.{}f}", text, error, digits);
}

EvalRun::EvalRun(std::string measure, const EvalFlags& flags, const Json& settings)
    : measure_(std::move(measure)), flags_(flags) {
  require(flags.batch >= 1, "--batch {}: at least 1 is needed", flags.batch);
  require_folder_of(flags.out);
  model_ = engine::load_model(flags.load);
  tokenizer_ = load_tokenizer(flags.load.model);
  identity_ = identity(settings);
  if (!flags.out.empty()) {
    eval::require_results_of(flags.out, identity_);
    journal_ = eval::Journal(journal_path(flags.out), identity_);
  }
}

EvalRun::~EvalRun() {
  if (std::uncaught_exceptions() > 0) {
    journal_.drop_if_empty();
  }
}

Json EvalRun::identity(const Json& settings) const {
  Json json{{"measure", measure_}};
  json.update(describe_run(flags_.load, *model_));
  json["seed"] = flags_.seed;
  json["chat"] = flags_.chat;
  json["settings"] = settings;
  return json;
}

std::vector<std::int32_t> EvalRun::prefix() const {
  const auto& bos = model_->spec().bos_token;
  return bos ? std::vector<std::int32_t>{*bos} : std::vector<std::int32_t>{};
}

eval::EncodePrompt EvalRun::encoder() const {
  if (!flags_.chat) {
    return [this](const std::string& text) {
      return tokenizer_->encode(text, {.add_special = true, .parse_special = false});
    };
  }
  return [encode = chat_encoder()](const std::string& text) {
    const ChatMessage message{"user", text};
    return encode(std::span(&message, 1));
  };
}

eval::EncodeBegun EvalRun::begun_encoder() const {
  if (!flags_.chat) {
    return [encode = encoder()](const std::string& text, const std::string& answer) {
      return encode(text + answer);
    };
  }
  return [this](const std::string& text, const std::string& answer) {
    const ChatMessage message{"user", text};
    return tokenizer_->encode(
        engine::render_chat(flags_.load.model, std::span(&message, 1)) + answer,
        {.add_special = false, .parse_special = true});
  };
}

eval::EncodeChat EvalRun::chat_encoder() const {
  return flags_.chat ? template_encoder() : eval::EncodeChat();
}

eval::EncodeChat EvalRun::template_encoder() const {
  return [this](std::span<const ChatMessage> messages) {
    const auto [before, opening] = eval::split_opening(messages);
    return tokenizer_->encode(engine::render_chat(flags_.load.model, before) + std::string(opening),
                              {.add_special = false, .parse_special = true});
  };
}

std::function<bool(std::int64_t)> EvalRun::progress(std::int64_t total, std::string unit) {
  progress_ = std::make_unique<ProgressBar>(measure_, total, std::move(unit));
  return [this](std::int64_t done) {
    progress_->update(done);
    return !interrupted();
  };
}

Json EvalRun::described() const {
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  Json run = identity_;
  run["complete"] = !interrupted();
  run["command"] = command_line();
  run["batch"] = flags_.batch;
  run["chunk"] = model_->engine.step_tokens;
  run["threads"] = thread_count();
  run["processor"] = processor();
  run["winnow"] = WINNOW_VERSION;
  run["commit"] = build_commit();
  run["compiler"] = __VERSION__;
  run["date"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  run["seconds"] = elapsed.count();
  return run;
}

int EvalRun::finish(const Json& results, const std::function<void()>& print_table) {
  progress_.reset();
  Json json = results;
  json["run"] = described();
  if (!flags_.out.empty() && !interrupted()) {
    write_text_file(flags_.out, json_text_replacing(json, 1) + "\n");
  }
  flags_.json ? print_json(json) : print_table();
  if (interrupted()) {
    print_note(flags_.out.empty()
                   ? "interrupted: this is what there is so far\n"
                   : fmt::format("interrupted: {} cases are kept in {}; the same command goes on\n",
                                 journal_.size(), journal_path(flags_.out).string()));
    return kInterrupted;
  }
  require(!journal_.has_only_skipped(),
          "{}: none of {} questions was answered: each has more tokens, its answer included, than "
          "the model's {} positions",
          flags_.load.model, journal_.size(), model_->spec().max_positions);
  return kSuccess;
}

}  // namespace winnow::cli
