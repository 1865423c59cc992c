// winnow train and winnow retrofit: training runs, from flags to a model directory.
#include <initializer_list>
#include <optional>
#include <utility>

#include "api/rank_team.h"
#include "apps/winnow/command.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/json_config.h"
#include "apps/winnow/output.h"
#include "apps/winnow/report/page.h"
#include "apps/winnow/train/data.h"
#include "apps/winnow/train/flags.h"
#include "apps/winnow/train/page.h"
#include "apps/winnow/train/plan.h"
#include "apps/winnow/train/progress.h"
#include "base/device_list.h"
#include "base/error.h"
#include "base/note.h"
#include "base/threads.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "engine/weight_memory.h"
#include "parallel/on_ranks.h"
#include "parallel/same_settings.h"
#include "train/backend.h"
#include "train/document.h"
#include "train/initial_model.h"
#include "train/memory_plan.h"
#include "train/run.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

// Flags that may differ when a run is resumed.
const std::vector<std::string> kNotTheRecipe{
    "help",         "config",        "out",        "data",        "valid",
    "valid-tokens", "save-every",    "keep-at",    "eval-every",  "dry-run",
    "resume",       "threads",       "device",     "activations", "save-dtype",
    "final-offset", "data-parallel", "zero-stage", "memory-gib"};
// Flags that may differ between ranks.
const std::vector<std::string> kOfOneRank{"help", "config", "threads"};

void check_paths(const TrainingFlags& flags) {
  require(!flags.model.empty() || !flags.init.empty(), "{}: no model directory was given{}",
          flags.retrofit ? "--model" : "--model or --init",
          flags.resume ? "; --resume goes with all flags of the run that it goes on with" : "");
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
  check(flags.memory);
  require(flags.dry_run || !flags.memory.bytes(), "--memory-gib goes with --dry-run only");
  for (const std::int64_t step : flags.keep_at) {
    require(step >= 1 && step <= flags.steps, "--keep-at {}: expected steps from 1 to {}", step,
            flags.steps);
  }
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

// The initial model; if it has to be created, rank 0 stores it next to the state.
model::Checkpoint open_base(const TrainingFlags& flags, bool first) {
  const fs::path made = fs::path(flags.out) / "training" / "base";
  if (flags.init.empty() && !flags.kv_heads) {
    return model::Checkpoint::open(flags.model);
  }
  const bool make = first && !flags.resume;
  if (make && flags.init.empty()) {
    train::write_grouped_model(model::Checkpoint::open(flags.model), made, *flags.kv_heads);
  } else if (make) {
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
  write_page(curves, training_page(out.string(), metrics, layers));
  return curves;
}

nlohmann::ordered_json recipe_of(const TrainingFlags& flags,
                                 const nlohmann::ordered_json& data_origin) {
  auto recipe = flag_values(*flags.command, kNotTheRecipe);
  recipe["training data"] = data_origin;
  return recipe;
}

// The inputs of a run. Rank 0 makes missing ones, the others wait for it.
struct Inputs {
  model::Checkpoint base;
  train::Shards shards;
};

Inputs open_inputs(const TrainingFlags& flags, parallel::Communicator& ranks) {
  const bool first = ranks.rank() == 0;
  const auto open = [&]() -> Inputs {
    model::Checkpoint base = open_base(flags, first);
    const auto data = tokenize_options(flags, base.directory(), flags.data);
    if (flags.resume) {  // before data that the run does not have replaces its own
      train::require_recipe(train::state_file(flags.out), recipe_of(flags, origin_of(data)));
    }
    train::Shards shards = open_data(data, base.spec(), fs::path(flags.out) / "training" / "data");
    return {std::move(base), std::move(shards)};
  };
  if (!first) {
    ranks.meet();
    return open();
  }
  Inputs inputs = open();
  ranks.meet();
  return inputs;
}

std::string settings_of(const TrainingFlags& flags) {
  std::string settings = fmt::format("version {}\n", WINNOW_VERSION);
  const auto values = flag_values(*flags.command, kOfOneRank);  // items() refers to it
  for (const auto& [name, value] : values.items()) {
    settings += fmt::format("--{} {}\n", name,
                            value.is_string() ? value.get<std::string>() : json_text(value));
  }
  return settings;
}

std::string contents_of(const Inputs& inputs) {
  return fmt::format("model {}\ntraining data {}\n", engine::parts_of(inputs.base, {}).digest,
                     json_text(inputs.shards.origin()));
}

train::RunOptions run_options(const TrainingFlags& flags, const train::Shards& shards) {
  train::RunOptions run;
  run.out = flags.out;
  run.recipe = recipe_of(flags, shards.origin());
  run.resume = flags.resume;
  run.save_every = flags.save_every;
  run.eval_every = flags.eval_every;
  run.keep_at = flags.keep_at;
  run.save_type = parse_save_dtype(flags.save_dtype);
  return run;
}

// For rank 0, which reports and writes.
int lead(const TrainingFlags& flags, train::Trainer& trainer, const train::HeldOut* held_out,
         train::RunOptions run) {
  TrainingProgress progress(trainer.options());
  run.on_begin = [&progress] { progress.begin(); };
  run.on_step = [&progress](const train::StepReport& report) { progress.step(report); };
  run.on_held_out = [&progress](std::int64_t step, const eval::PerplexityResult& result) {
    progress.held_out(step, result);
  };
  run.should_stop = interrupted;
  const bool finished = train::run_training(trainer, held_out, run);
  progress.clear();
  const fs::path curves = write_curves(flags.out, trainer.spec().layer_count());
  if (!finished) {
    print_note(
        fmt::format("stopped after step {}: the same command with --resume goes on from there\n",
                    trainer.steps_done()));
    return kInterrupted;
  }
  print(fmt::format("{}: the model after {} steps{}\n{}: its curves\n", flags.out,
                    trainer.steps_done(), progress.verdict(), curves.string()));
  return kSuccess;
}

void note_little_data(const train::Shards& shards, const train::TrainingOptions& options) {
  const auto step = static_cast<std::int64_t>(options.batch * options.length);
  if (shards.tokens() < step) {
    note(fmt::format("--data has {} tokens, a step takes {}: each sees all of them again",
                     grouped(shards.tokens()), grouped(step)));
  }
}

int train_on(parallel::Communicator& ranks, const TrainingFlags& flags,
             const train::TrainingOptions& options) {
  parallel::require_same_settings(ranks, settings_of(flags));
  const bool first = ranks.rank() == 0;
  std::optional<train::RunLock> lock;
  if (first) {
    lock.emplace(flags.out);
  }
  const Inputs inputs = open_inputs(flags, ranks);
  parallel::require_same_settings(ranks, contents_of(inputs));
  const auto held_out = first ? open_held_out(flags, inputs.base, options) : std::nullopt;
  train::Trainer trainer(options, inputs.base, inputs.shards, ranks);
  const train::RunOptions run = run_options(flags, inputs.shards);
  if (first) {
    note_little_data(inputs.shards, options);
    return lead(flags, trainer, held_out ? &*held_out : nullptr, run);
  }
  train::follow_training(trainer, run);
  return kSuccess;
}

// A plan is arithmetic: it needs no device if --memory-gib says how much memory there is.
void require_devices(const TrainingFlags& flags, const train::TrainingOptions& options,
                     const model::ModelSpec& config) {
  if (flags.dry_run && options.cuda_device) {
    const std::string problem = list_devices().problem;
    require(problem.empty(),
            "--device cuda: {}; --memory-gib 24 plans for a GPU with 24 GiB that is elsewhere",
            problem);
  }
  train::require_training_devices(options, config);
}

int run(const TrainingFlags& flags) {
  const train::TrainingOptions options = training_options(flags);
  check_paths(flags);
  check_numbers(flags);
  static_cast<void>(parse_save_dtype(flags.save_dtype));
  const fs::path source = flags.init.empty() ? flags.model : flags.init;
  model::ModelSpec config = model::read_spec(source);
  train::validate(options, config);
  const auto elsewhere = flags.memory.bytes();
  if (!elsewhere) {
    require_devices(flags, options, config);
  }
  const std::size_t available = elsewhere ? *elsewhere : train::available_memory(options);
  const train::MemoryPlan plan = train::plan_memory(options, config, available);
  if (flags.dry_run) {
    print_plan(plan, available, flags, options, config);
    return kSuccess;
  }
  train::require_fits(plan, available);
  check_files("--data", flags.data);
  check_files("--valid", flags.valid);
  // Checked here, because the data may have been tokenised earlier.
  static_cast<void>(train::load_fitting_tokenizer(source, config));
  train::check_state(flags.out, flags.resume);
  set_threads(flags.threads);
  int result = kSuccess;
  parallel::on_ranks(options.ranks, "--data-parallel", [&](parallel::Communicator& ranks) {
    const int own = train_on(ranks, flags, options);
    if (ranks.rank() == 0) {
      result = own;
    }
  });
  return result;
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
