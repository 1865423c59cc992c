// winnow train and winnow retrofit: training runs, from flags to a model directory.
#include <initializer_list>
#include <utility>

#include "apps/winnow/command.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/json_config.h"
#include "apps/winnow/output.h"
#include "apps/winnow/train/data.h"
#include "apps/winnow/train/flags.h"
#include "apps/winnow/train/page.h"
#include "apps/winnow/train/progress.h"
#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json.h"
#include "train/document.h"
#include "train/initial_model.h"
#include "train/memory_plan.h"
#include "train/run.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

// What may differ when a run is resumed.
const std::vector<std::string> kNotTheRecipe{
    "help",         "config",     "out",         "data",       "valid",
    "valid-tokens", "save-every", "eval-every",  "dry-run",    "resume",
    "threads",      "device",     "activations", "save-dtype", "final-offset"};

void check_paths(const TrainingFlags& flags) {
  require(!flags.model.empty() || !flags.init.empty(), "{}: no model directory was given",
          flags.retrofit ? "--model" : "--model or --init");
  require(flags.model.empty() || flags.init.empty(), "--model and --init exclude each other");
  require(!flags.kv_heads || flags.init.empty(),
          "--kv-heads: with --init, config.json says how many there are");
  if (flags.dry_run) {
    return;
  }
  require(!flags.out.empty(), "--out: no directory for the model was given");
  require(!flags.data.empty(), "--data: no training data was given");
  std::error_code ignored;
  for (const std::string& source : {flags.model, flags.init}) {
    require(source.empty() || !fs::equivalent(source, flags.out, ignored),
            "--out {}: that is the model to start from", flags.out);
  }
}

// Checked before tokenising, which can take hours.
void check_files(const char* flag, const std::vector<std::string>& files) {
  std::error_code ignored;
  for (const std::string& file : files) {
    require(fs::exists(file, ignored), "{} {}: there is no such file", flag, file);
    require(files.size() == 1 || !fs::is_directory(file, ignored),
            "{} {}: a folder that tokenize-data made stands alone, other files beside it are not "
            "taken",
            flag, file);
  }
}

void check_numbers(const TrainingFlags& flags) {
  for (const auto& [flag, value] : std::initializer_list<std::pair<const char*, std::int64_t>>{
           {"--save-every", flags.save_every},
           {"--eval-every", flags.eval_every},
           {"--valid-tokens", flags.valid_tokens},
           {"--threads", flags.threads}}) {
    require(value >= 0, "{} {}: expected 0 or more", flag, value);
  }
}

int print_plan(const train::MemoryPlan& plan, const train::TrainingOptions& options) {
  print(fmt::format("{:<38} {:>10}\n", "parameters", grouped(plan.parameters)));
  print(fmt::format("{:<38} {:>10}\n", "trained", grouped(plan.trained)));
  for (const auto& part : plan.parts) {
    print(fmt::format("  {:<36} {:>10}\n", part.name,
                      readable_bytes(static_cast<double>(part.bytes))));
  }
  const std::size_t available = train::available_memory(options);
  print(fmt::format("{:<38} {:>10}\n", "memory needed, about",
                    readable_bytes(static_cast<double>(plan.total()))));
  print(fmt::format("{:<38} {:>10}\n", "memory available",
                    readable_bytes(static_cast<double>(available))));
  train::require_fits(plan, available);
  return kSuccess;
}

train::TokenizeOptions tokenize_options(const TrainingFlags& flags, const fs::path& model,
                                        const std::vector<std::string>& files) {
  train::TokenizeOptions options;
  options.files.assign(files.begin(), files.end());
  options.model = model;
  options.mask_prompts = flags.mask_prompts;
  options.max_malformed = flags.max_malformed;
  return options;
}

// The initial model; if it has to be created, it is stored beside the state.
model::Checkpoint open_base(const TrainingFlags& flags) {
  const fs::path made = fs::path(flags.out) / "training" / "base";
  if (flags.init.empty() && !flags.kv_heads) {
    return model::Checkpoint::open(flags.model);
  }
  if (!flags.resume && flags.init.empty()) {
    train::write_grouped_model(model::Checkpoint::open(flags.model), made, *flags.kv_heads);
  } else if (!flags.resume) {
    train::write_initial_model(flags.init, made, parse_save_dtype(flags.save_dtype), flags.seed);
  }
  return model::Checkpoint::open(made);
}

std::optional<train::HeldOut> open_held_out(const TrainingFlags& flags,
                                            const model::Checkpoint& base,
                                            const train::TrainingOptions& options) {
  if (flags.valid.empty()) {
    return std::nullopt;
  }
  const train::Shards shards =
      open_data(tokenize_options(flags, base.directory(), flags.valid), base.spec(),
                fs::path(flags.out) / "training" / "held-out");
  return std::make_optional<train::HeldOut>(
      base, shards,
      train::HeldOut::Options{.context = static_cast<int>(options.length),
                              .max_tokens = flags.valid_tokens,
                              .compute = options.compute,
                              .device = flags.device,
                              .compare = flags.retrofit});
}

fs::path write_curves(const fs::path& out, int layers) {
  fs::path curves = out / "training" / "curves.html";
  const std::string metrics = read_text_file(out / "training" / "metrics.jsonl");
  write_text_file(curves, training_page(out.string(), metrics, layers));
  return curves;
}

int run(const TrainingFlags& flags) {
  const train::TrainingOptions options = training_options(flags);
  check_paths(flags);
  check_numbers(flags);
  const DType save_type = parse_save_dtype(flags.save_dtype);
  const fs::path source = flags.init.empty() ? flags.model : flags.init;
  model::ModelSpec config = model::read_spec(source);
  train::validate(options, config);
  const train::MemoryPlan plan = train::plan_memory(options, config);
  if (flags.dry_run) {
    return print_plan(plan, options);
  }
  train::require_fits(plan, train::available_memory(options));
  check_files("--data", flags.data);
  check_files("--valid", flags.valid);
  // Checked here, because the data may have been tokenised earlier.
  static_cast<void>(train::load_fitting_tokenizer(source, config));
  train::check_state(flags.out, flags.resume);
  set_threads(flags.threads);

  const model::Checkpoint base = open_base(flags);
  const train::Shards shards = open_data(tokenize_options(flags, base.directory(), flags.data),
                                         base.spec(), fs::path(flags.out) / "training" / "data");
  const auto held_out = open_held_out(flags, base, options);
  train::Trainer trainer(options, base, shards);
  TrainingProgress progress(options);

  train::RunOptions run;
  run.out = flags.out;
  run.recipe = flag_values(*flags.command, kNotTheRecipe);
  run.recipe["training data"] = shards.origin();
  run.resume = flags.resume;
  run.save_every = flags.save_every;
  run.eval_every = flags.eval_every;
  run.save_type = save_type;
  run.on_step = [&progress](const train::StepReport& report) { progress.step(report); };
  run.on_held_out = [&progress](std::int64_t step, const eval::PerplexityResult& result) {
    progress.held_out(step, result);
  };
  run.should_stop = interrupted;
  const bool finished = train::run_training(trainer, held_out ? &*held_out : nullptr, run);
  progress.clear();
  const fs::path curves = write_curves(flags.out, config.layer_count());
  if (!finished) {
    print_note(
        fmt::format("stopped after step {}: --resume goes on from there\n", trainer.steps_done()));
    return kInterrupted;
  }
  print(fmt::format("{}: the model after {} steps\n{}: its curves\n", flags.out,
                    trainer.steps_done(), curves.string()));
  return kSuccess;
}

void add_training(CLI::App& app, Run& run_command, bool retrofit, const char* name,
                  const char* description) {
  auto flags = std::make_shared<TrainingFlags>();
  flags->retrofit = retrofit;
  if (retrofit) {
    flags->lr = 1e-4;
    flags->weight_decay = 0.0;
    flags->schedule = "linear";
    flags->warmup = 30;
    flags->decay_share = 0.5;
    flags->final_lr = 0.0;
  }
  CLI::App* command = app.add_subcommand(name, description);
  add_training_flags(*command, *flags);
  command->callback([&run_command, command, flags] {
    run_command = [command, flags] {
      if (!flags->config.empty()) {
        apply_json_config(*command, flags->config);
      }
      return run(*flags);
    };
  });
}

}  // namespace

void add_train(CLI::App& app, Run& run) {
  add_training(app, run, false, "train",
               "Trains a model with the language-model loss, from random weights or further");
}

void add_retrofit(CLI::App& app, Run& run) {
  add_training(
      app, run, true, "retrofit",
      "Teaches a model to compress its own cache (DMS or DMC), by distillation from itself");
}

}  // namespace winnow::cli
