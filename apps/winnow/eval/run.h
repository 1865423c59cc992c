// Common parts of all measures of `winnow eval`: flags, the model, the results file, the
// report.
#pragma once

#include <CLI/CLI.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/winnow/flag_group.h"
#include "apps/winnow/progress.h"
#include "apps/winnow/run_settings.h"
#include "eval/haystack.h"
#include "eval/journal.h"
#include "eval/ruler/prompt.h"
#include "eval/tasks/text_tasks.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {

using eval::Json;

struct EvalFlags {
  LoadOptions load;
  std::uint64_t seed = 1;
  int batch = 8;
  std::string out;
  bool json = false;
  bool chat = false;
};

/// --model and how it is run, --seed, --batch, --out and --json.
void add_eval_flags(CLI::App& command, EvalFlags& flags);
/// --text, which must be given.
void add_text_flag(const FlagGroup& group, std::string& text);
/// --lengths: for measures that hide something in a text.
void add_lengths_flag(const FlagGroup& group, std::vector<int>& lengths);
/// --lengths, and --max-tokens of an answer.
void add_length_flags(const FlagGroup& group, std::vector<int>& lengths, int& max_tokens);
/// --chat: for measures that ask questions.
void add_chat_flag(CLI::App& command, EvalFlags& flags);

/// One measurement: a loaded model, its results file, and the report.
class EvalRun {
 public:
  /// `settings`: everything besides the common flags that determines the records.
  EvalRun(std::string measure, const EvalFlags& flags, const Json& settings);
  /// A run that is refused, which throws, leaves no journal of nothing.
  ~EvalRun();
  EvalRun(const EvalRun&) = delete;
  EvalRun& operator=(const EvalRun&) = delete;

  [[nodiscard]] const engine::LoadedModel& model() const { return *model_; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }
  [[nodiscard]] eval::Journal& journal() { return journal_; }
  /// BOS, if the model has one.
  [[nodiscard]] std::vector<std::int32_t> prefix() const;
  /// Converts a question to the model's prompt: with BOS, or by its chat template under --chat.
  [[nodiscard]] eval::EncodePrompt encoder() const;
  /// The same, with the beginning of the answer.
  [[nodiscard]] eval::EncodeBegun begun_encoder() const;
  /// Encodes chats by the model's template; empty without --chat.
  [[nodiscard]] eval::EncodeChat chat_encoder() const;
  /// Encodes chats, begun ones too (split_opening), by the model's template, with or without
  /// --chat.
  [[nodiscard]] eval::EncodeChat template_encoder() const;

  /// Draws progress; false after a Ctrl-C.
  [[nodiscard]] std::function<bool(std::int64_t)> progress(std::int64_t total, std::string unit);

  /// Prints `results` as JSON under --json and else by `print_table`, and writes them to --out,
  /// with "run": everything needed to reproduce it. Returns the exit code.
  int finish(const Json& results, const std::function<void()>& print_table);
  /// The same "run" object, for other files.
  [[nodiscard]] Json described() const;

 private:
  [[nodiscard]] Json identity(const Json& settings) const;

  std::string measure_;
  const EvalFlags& flags_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::unique_ptr<const engine::LoadedModel> model_;
  std::unique_ptr<const Tokenizer> tokenizer_;
  Json identity_;
  eval::Journal journal_;
  std::unique_ptr<ProgressBar> progress_;
};

/// "1.23 +- 0.04"; without the error if it is NaN
std::string with_error(double mean, double error, int digits);

}  // namespace winnow::cli
