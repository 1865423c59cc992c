// winnow demo: the main job in ten seconds. A retrofitted model reads a long text and answers a
// question about it; the uncompressed model answers the same question for comparison.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <utility>

#include "api/llm_load.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "apps/winnow/report/heat_map.h"
#include "apps/winnow/screen.h"
#include "base/error.h"
#include "engine/stop_matcher.h"
#include "eval/divergence.h"
#include "tokenizer/stream_decoder.h"

namespace winnow::cli {
namespace {

struct DemoFlags {
  std::string model = "assets/dms-cr8";
  std::string base = "assets/base";
  std::string prompt_file = "assets/demo_prompt.txt";
  int max_tokens = 20;
  int threads = 0;
};

// A run and its title in the table.
struct ModelColumn {
  std::string title;
  eval::GreedyRun run;
};

// Data that all runs share.
struct Demo {
  const DemoFlags& flags;
  std::string prompt;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::vector<std::int32_t> tokens;
  bool colour = false;

  [[nodiscard]] std::string styled(std::string_view text, std::string_view code) const {
    return colour && !text.empty() ? fmt::format("\x1b[{}m{}\x1b[0m", code, text)
                                   : std::string(text);
  }
  [[nodiscard]] std::string bold(std::string_view text) const { return styled(text, "1"); }
  [[nodiscard]] std::string dim(std::string_view text) const { return styled(text, "2"); }
};

std::unique_ptr<const engine::LoadedModel> load(const DemoFlags& flags, const std::string& model,
                                                const std::string& cache) {
  LoadOptions options;
  options.model = model;
  options.cache = cache;
  options.threads = flags.threads;
  return engine::load_model(options);
}

eval::GreedyRun run(const Demo& demo, const engine::LoadedModel& model, const std::string& label,
                    const eval::OnToken& on_token) {
  ProgressBar bar(label, static_cast<std::int64_t>(demo.tokens.size()), "tokens");
  return eval::run_greedy(
      model, demo.tokens, demo.flags.max_tokens,
      [&](std::int32_t token) {
        bar.clear();
        return on_token(token);
      },
      [&](int done) {
        stop_if_interrupted();
        bar.update(done);
      });
}

// Writes the first paragraph of the answer. Ctrl-C ends the demo.
eval::GreedyRun run_streaming(const Demo& demo, const engine::LoadedModel& model) {
  StreamDecoder decoder(*demo.tokenizer);
  engine::StopMatcher paragraph({"\n\n"});
  bool begun = false;
  auto result = run(demo, model, "reading", [&](std::int32_t token) {
    if (!begun) {
      print("\n  The model goes on:\n\n");
      begun = true;
    }
    print_now(demo.bold(paragraph.push(decoder.push(token))));
    return !interrupted();
  });
  print_now(demo.bold(paragraph.push(decoder.finish()) + paragraph.finish()) + "\n\n");
  stop_if_interrupted();
  return result;
}

eval::GreedyRun run_silently(const Demo& demo, const engine::LoadedModel& model,
                             const std::string& label) {
  return run(demo, model, label, [](std::int32_t) {
    stop_if_interrupted();
    return true;
  });
}

std::string last_two_lines(const std::string& text) {
  const std::size_t last = text.rfind('\n') + 1;  // 0 when there is none
  return text.substr(last < 2 ? 0 : text.rfind('\n', last - 2) + 1);
}

void print_header(const Demo& demo, const engine::LoadedModel& model) {
  const model::ModelSpec& config = model.spec();
  const kvcache::CacheConfig& cache = model.engine.cache;
  const std::string rule(kvcache::rule_name(cache.rule));
  print(demo.bold("winnow demo") +
        ": a long text, read with a cache that learned what to keep\n\n");
  print(fmt::format("  model   {}: {}, {} parameters, {} layers x {} KV heads\n", demo.flags.model,
                    config.family, readable_count(static_cast<double>(model.parameters)),
                    config.layer_count(), config.attention().kv_heads));
  print(fmt::format("  cache   {}{}\n", rule,
                    cache.traits().marks
                        ? fmt::format(": what is older than {} tokens stays only if the model wants"
                                      " it",
                                      cache.window)
                        : ""));
  print(fmt::format("  text    {}, {} tokens; it ends:\n\n", demo.flags.prompt_file,
                    grouped(static_cast<long long>(demo.tokens.size()))));
  print_now(demo.dim(last_two_lines(demo.prompt)) + "\n");
}

using CellText = std::function<std::string(const ModelColumn&)>;

void print_row(const std::string& label, std::span<const ModelColumn> columns,
               const CellText& cell) {
  std::string line = fmt::format("  {:<24}", label);
  for (const ModelColumn& column : columns) {
    line += fmt::format("{:>16}", cell(column));
  }
  print(line + "\n");
}

void print_table(const Demo& demo, std::span<const ModelColumn> columns) {
  std::string header(26, ' ');
  for (const ModelColumn& column : columns) {
    header += fmt::format("{:>16}", column.title);
  }
  print(demo.bold(header) + "\n");
  const auto row = [&](const std::string& label, const CellText& cell) {
    print_row(label, columns, cell);
  };
  row("live entries", [](const ModelColumn& c) { return grouped(c.run.cache.live_entries); });
  row("bytes allocated",
      [](const ModelColumn& c) { return readable_bytes(static_cast<double>(c.run.cache.bytes)); });
  row("compression ratio",
      [](const ModelColumn& c) { return fmt::format("{:.2f}x", c.run.cache.compression_ratio()); });
  row("prefill, tokens/s",
      [](const ModelColumn& c) { return fmt::format("{:.0f}", c.run.prefill_tokens_per_s); });
  row("decode, tokens/s",
      [](const ModelColumn& c) { return fmt::format("{:.0f}", c.run.decode_tokens_per_s); });
}

// The losses of the compressed run, the first column, against each of the others.
void print_divergence(std::span<const ModelColumn> columns) {
  const auto row = [&](const std::string& label,
                       const std::function<std::string(const eval::GreedyDivergence&)>& cell) {
    print_row(label, columns, [&](const ModelColumn& column) {
      return &column == columns.data()
                 ? std::string("-")
                 : cell(eval::compare_greedy(columns.front().run, column.run));
    });
  };
  const std::size_t total = columns.front().run.tokens.size();
  row("KLD, nats/token",
      [](const eval::GreedyDivergence& d) { return fmt::format("{:.4f}", d.kld); });
  row("same tokens", [&](const eval::GreedyDivergence& d) {
    return fmt::format("{}/{}", d.tokens_matched, total);
  });
  row("tokens compared", [](const eval::GreedyDivergence& d) { return grouped(d.tokens_scored); });
}

// Without flags, the demo reads files of a clone.
void check_place(const DemoFlags& flags) {
  const DemoFlags clone;
  for (const auto& [given, usual] :
       {std::pair(&flags.model, &clone.model), std::pair(&flags.prompt_file, &clone.prompt_file)}) {
    std::error_code ignored;
    require(*given != *usual || std::filesystem::exists(*given, ignored),
            "{} is not here: the demo runs in a clone of winnow; elsewhere it needs --model and "
            "--prompt-file",
            *given);
  }
}

int run_demo(const DemoFlags& flags) {
  check_place(flags);
  Demo demo{.flags = flags,
            .prompt = read_utf8("--prompt-file", flags.prompt_file),
            .tokenizer = load_tokenizer(flags.model),
            .tokens = {},
            .colour = output_takes_escapes()};
  demo.tokens = demo.tokenizer->encode(demo.prompt);
  std::vector<ModelColumn> columns;

  const auto student = load(flags, flags.model, "auto");
  print_header(demo, *student);
  columns.push_back({"compressed", run_streaming(demo, *student)});
  const auto dense = load(flags, flags.model, "dense");
  columns.push_back({"same, dense", run_silently(demo, *dense, "the same, dense")});
  std::error_code ignored;
  if (std::filesystem::exists(flags.base, ignored)) {
    const auto base = load(flags, flags.base, "dense");
    columns.push_back({"base model", run_silently(demo, *base, "base model")});
  }
  print_table(demo, columns);
  print(
      "\n  The compressed run beside the others (KLD: difference of the predictions, 0: none):\n");
  print_divergence(columns);

  const engine::CacheUsage& cache = columns.front().run.cache;
  print(fmt::format("\nEntries that each head holds after {} tokens (a full bar: all of them)\n\n",
                    grouped(cache.tokens)));
  print(cache_picture(cache.per_head, student->model.spec().attention().kv_heads, cache.tokens,
                      demo.colour));
  print(fmt::format("\nNext: {}docs/tutorial.md\n", step_after_demo(flags.model)));
  return kSuccess;
}

}  // namespace

void add_demo(CLI::App& app, Run& run) {
  std::shared_ptr<DemoFlags> flags;
  CLI::App* command = add_command(app, run, "demo",
                                  "Answers a question about a long text with a compressed cache, "
                                  "and compares the cache with that of an uncompressed run",
                                  flags, run_demo);
  const FlagGroup own(*command);
  own.option(kModelFlag, flags->model, kModelType, "The retrofitted model");
  own.option("--base", flags->base, kModelType, "The model it was made from; skipped if missing");
  own.option("--prompt-file", flags->prompt_file, "FILE", "The text and the question");
  own.option("--max-tokens", flags->max_tokens, "N", "Tokens to generate");
  add_threads_flag(own, flags->threads);
}

}  // namespace winnow::cli
