#include "apps/winnow/train/flags.h"

#include <charconv>
#include <cmath>

#include "apps/winnow/flags.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/unused_flags.h"
#include "base/error.h"
#include "engine/options.h"

namespace winnow::cli {
namespace {

void add_data_flags(CLI::App& command, TrainingFlags& flags) {
  const FlagGroup data(command, "Data");
  data.open_option("--data", flags.data, "FILE",
                   "Training data: JSONL, plain or .zst, with \"text\", \"parts\", \"prompt\" and "
                   "\"completion\", or \"messages\"; or one folder that tokenize-data made "
                   "(no default)");
  data.open_option("--valid", flags.valid, "FILE",
                   "Held-out data of the same kind (default: none is measured)");
  add_document_flags(data, flags.mask_prompts, flags.max_malformed);
  data.option("--length", flags.length, "N", "Tokens per sequence");
  data.option("--seed", flags.seed, "N", "Seed of the data order and of sampling");
}

void add_optimizer_flags(CLI::App& command, TrainingFlags& flags) {
  const FlagGroup optimizer(command, "Optimiser");
  optimizer.option("--steps", flags.steps, "N", "Updates");
  optimizer.option("--batch", flags.batch, "N", "Sequences per update");
  optimizer.option("--micro-batch", flags.micro_batch, "N",
                   "Sequences computed at once; gradients add up to --batch");
  optimizer.option("--optimizer", flags.optimizer, "KIND",
                   "adamw; or muon: the matrices of the layers by Muon, all else by AdamW");
  optimizer.option("--momentum", flags.momentum, "X", "muon: momentum");
  optimizer.option("--lr", flags.lr, "X", "Peak learning rate");
  optimizer.option("--schedule", flags.schedule, "KIND",
                   "Learning-rate schedule: constant, cosine or linear");
  optimizer.option("--warmup", flags.warmup, "N", "Warm-up steps");
  optimizer.option("--decay-share", flags.decay_share, "SHARE",
                   "Last share of all steps, over which the learning rate decays");
  optimizer.option("--final-lr", flags.final_lr, "X", "Final learning rate, as a factor of --lr");
  optimizer.option("--weight-decay", flags.weight_decay, "X",
                   "Weight decay of matrices; norms, biases and decisions have none");
  optimizer.option("--beta1", flags.beta1, "X", "AdamW: beta 1");
  optimizer.option("--beta2", flags.beta2, "X", "AdamW: beta 2");
  optimizer.option("--epsilon", flags.epsilon, "X", "AdamW: epsilon");
  optimizer.option("--clip", flags.clip, "X",
                   "Clip gradients to this norm, those of decisions separately; 0: off");
}

void add_far_dropout_flags(CLI::App& command, TrainingFlags& flags) {
  const FlagGroup far(command, "Far dropout (in training, heads see only a window at random)");
  far.option(
      "--far-dropout", flags.far_dropout, "SHARE",
      "Share of documents in which all heads except --far-heads see only --far-window; 0: none");
  far.option("--far-mixed", flags.far_mixed, "SHARE",
             "Share of documents, part of --far-dropout, in which each head does so at random");
  far.option("--far-window", flags.far_window, "W", "Tokens back that such heads see");
  far.open_option("--far-heads", flags.far_heads, "L:H,...",
                  "Layer and KV head, from 0, of those that always see everything (default: none)")
      ->delimiter(',');
}

void add_run_flags(CLI::App& command, TrainingFlags& flags) {
  const FlagGroup run(command, "Run");
  run.open_option("--config", flags.config, "FILE",
                  "JSON object of flags; those on the command line win (default: none)");
  run.flag("--dry-run", flags.dry_run,
           "Print tokens, work, hours, parameters and memory of the run, and exit; for a GPU that "
           "is elsewhere with --device cuda --memory-gib 24 (default: off)");
  add_memory_flag(run, flags.memory);
  run.flag("--resume", flags.resume,
           "Continue from the last checkpoint in --out, to the bit (default: off)");
  run.option("--save-every", flags.save_every, "N",
             "Steps between checkpoints; 0: only at the end");
  run.open_option("--keep-at", flags.keep_at, "N,...",
                  "Also keep the model after these steps, each in the folder step-N of --out "
                  "(default: none)")
      ->delimiter(',');
  run.option("--eval-every", flags.eval_every, "N",
             "Steps between evaluations on held-out data; 0: only before and after");
  run.option("--valid-tokens", flags.valid_tokens, "N", "Most held-out tokens; 0: all");
  run.option("--save-dtype", flags.save_dtype, "TYPE",
             "Type of the saved weights: bf16, fp16 or fp32");
  run.option("--device", flags.device, "DEVICE",
             "Where to train: cpu, cuda or cuda:N (bf16, activations kept where they fit)");
  run.option("--data-parallel", flags.data_parallel, "N",
             "Ranks that each compute a share of the batch and keep a part of the optimiser's "
             "state: processes started by mpirun, srun or torchrun, else threads; with --device "
             "cuda one GPU each");
  run.option("--zero-stage", flags.zero_stage, "N",
             "What ranks share out: 1: the optimiser's state; 3: weights and gradients too, which "
             "are whole for a layer or two at a time (less memory)");
  run.option(
      "--dtype", flags.dtype, "TYPE",
      "Products in bf16, where the CPU has it; on the CPU fp32; on an H100 or H200 fp8: those "
      "of layers, but for gradients of weights. Sums, gradients and the optimiser are in "
      "fp32");
  run.option(
      "--activations", flags.activations, "KIND",
      "keep: until the backward pass (faster, more memory); recompute: layer by layer; auto: "
      "keep on a CUDA device that has room, else recompute");
  add_threads_flag(run, flags.threads);
}

void add_decision_flags(CLI::App& command, TrainingFlags& flags) {
  const FlagGroup decisions(command, "Decisions");
  decisions.option("--method", flags.method, "KIND",
                   "dms: delayed eviction of marked keys; dmc: merge keys and values into running "
                   "averages (--decisions to --scale apply to DMS, --per to both)");
  decisions.option("--decisions", flags.decisions, "KIND",
                   "borrowed: one channel of a query head decides, all weights are trained; "
                   "adapter: a separate probe decides, the model does not change");
  decisions.option("--window", flags.window, "W", "Steps for which a marked key stays visible");
  decisions.option("--shift", flags.shift, "N",
                   "1: the next token decides about a key; 0: its own");
  decisions.option("--eviction", flags.eviction, "KIND",
                   "delayed: decided at once, evicted --window steps later (DMS); immediate: "
                   "decided and evicted when the key is --window steps old (to compare)");
  decisions.option("--per", flags.per, "KIND", "head, or layer: head 0 decides for its layer");
  decisions.option("--channel", flags.channel, "N", "The borrowed channel; -1: the last");
  decisions.flag("--keep-after-rope", flags.keep_after_rope,
                 "Do not clear the borrowed channel again after RoPE; with --shift 0 that is "
                 "shisa-ai's convention (default: clear)");
  decisions.option("--scale", flags.scale, "X", "Decision logit = scale * x - offset");
  decisions.option("--offset", flags.offset, "X", "Offset of that logit while training");
  decisions.open_option(
      "--final-offset", flags.final_offset, "X",
      "Offset in the saved model; a larger one keeps more keys (default: --offset)");
  decisions.option("--merge-span", flags.merge_span, "N",
                   "dmc: longest span of a running average in training");
  decisions.flag("--uniform-weights", flags.uniform_weights,
                 "dmc: all entries of an average weigh the same (to compare; default: learned)");
  decisions.flag("--fixed-pooling", flags.fixed_pooling,
                 "dmc: every --target-cr tokens are one entry, a whole number; nothing decides (to "
                 "compare; default: learned)");
  decisions.option("--tau", flags.tau, "X", "Temperature of the sampled decisions");
}

void add_retrofit_flags(CLI::App& command, TrainingFlags& flags) {
  add_decision_flags(command, flags);
  const FlagGroup retrofit(command, "Retrofitting");
  retrofit.option("--target-cr", flags.target_cr, "X",
                  "Compression ratio to reach: all keys / keys that are not marked");
  retrofit.open_option("--fade-steps", flags.fade_steps, "N",
                       "Phase 1: steps over which a borrowed channel fades out (default: a tenth "
                       "of --steps; adapters: 0)");
  retrofit.open_option("--ramp-steps", flags.ramp_steps, "N",
                       "Phase 2: steps until --target-cr (default: half of --steps)");
  retrofit.option("--ramp", flags.ramp, "KIND",
                  "parabola: the share to evict rises ever more slowly; linear: the CR rises by "
                  "the same each step");
  retrofit.open_option("--decision-lr", flags.decision_lr, "X",
                       "Learning rate of decisions (default: 1e-5, adapters 3e-5, dmc: --lr)");
  retrofit.option("--loss", flags.loss, "KIND",
                  "price: each key kept costs what makes --target-cr come true, under PI "
                  "control; one-sided: a weight on the share that is missing (the paper)");
  retrofit.option("--prior", flags.prior, "KIND",
                  "global: all layers and heads reach --target-cr together; layer: each layer by "
                  "itself (to compare)");
  retrofit.option(
      "--spread-weight", flags.spread_weight, "X",
      "Weight on the variance of the shares that the heads of a layer evict (DMC-C, to compare)");
  retrofit.option("--price-gain", flags.price_gain, "X",
                  "price: proportional gain, in nats per missing share");
  retrofit.option("--price-rate", flags.price_rate, "X",
                  "price: integral gain, in nats per missing share and step");
  retrofit.option("--shortfall-weight", flags.shortfall_weight, "X",
                  "one-sided: weight on the missing share");
  retrofit.option("--excess-weight", flags.excess_weight, "X",
                  "Weight on squares of decision logits beyond --excess-limit");
  retrofit.option("--excess-limit", flags.excess_limit, "X",
                  "Size of a decision logit from which --excess-weight counts");
  retrofit.option("--main-loss", flags.main_loss, "KIND",
                  "distillation: from the original model; language-model: on the text");
  retrofit.option("--divergence", flags.divergence, "KIND",
                  "forward: KL(model before || after); reverse: KL(after || before)");
}

train::FarDropout far_dropout(const TrainingFlags& flags) {
  train::FarDropout far{.window = flags.far_window,
                        .share = flags.far_dropout,
                        .mixed = flags.far_mixed,
                        .far_heads = {}};
  for (const std::string& name : flags.far_heads) {
    train::FarDropout::Head head;
    const char* const end = name.data() + name.size();
    const auto layer = std::from_chars(name.data(), end, head.layer);
    const bool colon = layer.ec == std::errc() && layer.ptr != end && *layer.ptr == ':';
    const auto kv_head = colon ? std::from_chars(layer.ptr + 1, end, head.kv_head) : layer;
    require(colon && kv_head.ec == std::errc() && kv_head.ptr == end,
            "--far-heads {}: expected LAYER:KV_HEAD, as in 3:0", name);
    far.far_heads.push_back(head);
  }
  return far;
}

train::Activations parse_activations(const std::string& name) {
  require(name == "auto" || name == "keep" || name == "recompute",
          "--activations {}: expected auto, keep or recompute", name);
  return name == "auto"   ? train::Activations::automatic
         : name == "keep" ? train::Activations::keep
                          : train::Activations::recompute;
}

train::ZeroStage parse_zero_stage(int stage) {
  require(stage == 1 || stage == 3, "--zero-stage {}: expected 1 or 3", stage);
  return static_cast<train::ZeroStage>(stage);
}

/// Whether the flag is `yes`; Error when it is neither `yes` nor `no`.
bool choose(const std::string& value, const char* flag, const char* yes, const char* no) {
  require(value == yes || value == no, "{} {}: expected {} or {}", flag, value, yes, no);
  return value == yes;
}

bool is_adapter(const TrainingFlags& flags) {
  return choose(flags.decisions, "--decisions", "adapter", "borrowed");
}

model::DmsConfig dms_config(const TrainingFlags& flags) {
  model::DmsConfig dms;
  dms.source =
      is_adapter(flags) ? model::DmsConfig::Source::adapter : model::DmsConfig::Source::borrowed;
  dms.window = flags.window;
  dms.shift = flags.shift;
  require(flags.shift == 0 || flags.shift == 1, "--shift {}: expected 0 or 1", flags.shift);
  if (choose(flags.eviction, "--eviction", "immediate", "delayed")) {
    require(flags.window >= 1 && flags.window <= flags.length,
            "--window {}: with --eviction immediate expected 1 to {}, the --length", flags.window,
            flags.length);
    dms.shift = flags.window;
    dms.window = flags.window - 1;
  }
  dms.per_layer = choose(flags.per, "--per", "layer", "head");
  dms.channel = flags.channel;
  dms.scale = flags.scale;
  dms.rezero_after_rope = !flags.keep_after_rope;
  dms.offset = flags.offset;
  return dms;
}

model::DmcConfig dmc_config(const TrainingFlags& flags) {
  constexpr double kMostPooled = 1024;
  model::DmcConfig dmc;
  dmc.offset = flags.offset;
  dmc.per_layer = choose(flags.per, "--per", "layer", "head");
  if (flags.fixed_pooling) {
    require(flags.target_cr >= 2.0 && flags.target_cr <= kMostPooled &&
                flags.target_cr == std::floor(flags.target_cr),
            "--target-cr {}: with --fixed-pooling a whole number from 2 to {} is expected",
            flags.target_cr, kMostPooled);
    dmc.pooled = static_cast<std::uint16_t>(flags.target_cr);
  }
  return dmc;
}

train::RetrofitOptions retrofit_options(const TrainingFlags& flags) {
  train::RetrofitOptions retrofit;
  if (choose(flags.method, "--method", "dmc", "dms")) {
    retrofit.dmc = dmc_config(flags);
    retrofit.merge_span = flags.merge_span;
    retrofit.uniform_weights = flags.uniform_weights;
  } else {
    retrofit.dms = dms_config(flags);
  }
  const bool adapter = !retrofit.dmc && is_adapter(flags);
  retrofit.main_loss = choose(flags.main_loss, "--main-loss", "distillation", "language-model")
                           ? train::MainLoss::distillation
                           : train::MainLoss::language_model;
  retrofit.final_offset = flags.final_offset.value_or(flags.offset);
  retrofit.tau = flags.tau;
  require(!adapter || flags.fade_steps.value_or(0) == 0,
          "--fade-steps {}: an adapter borrows no channel that could fade out",
          flags.fade_steps.value_or(0));
  retrofit.fade_steps = flags.fade_steps.value_or(adapter ? 0 : flags.steps / 10);
  retrofit.ramp = {train::parse_ramp(flags.ramp, "--ramp"), flags.target_cr,
                   flags.ramp_steps.value_or(flags.steps / 2)};
  retrofit.eviction = choose(flags.loss, "--loss", "price", "one-sided")
                          ? train::EvictionLoss::price
                          : train::EvictionLoss::one_sided;
  retrofit.prior = choose(flags.prior, "--prior", "layer", "global") ? train::EvictionPrior::layer
                                                                     : train::EvictionPrior::global;
  retrofit.price = {flags.price_gain, flags.price_rate, 0.0};
  retrofit.one_sided_weight = flags.shortfall_weight;
  retrofit.spread_weight = flags.spread_weight;
  retrofit.excess = flags.fixed_pooling ? 0.0 : flags.excess_weight;
  retrofit.excess_limit = flags.excess_limit;
  retrofit.divergence = choose(flags.divergence, "--divergence", "forward", "reverse")
                            ? ops::Divergence::forward
                            : ops::Divergence::reverse;
  return retrofit;
}

}  // namespace

void add_document_flags(const FlagGroup& group, bool& mask_prompts, double& max_malformed) {
  group.flag("--mask-prompts", mask_prompts,
             "Predict only completions and the assistant's answers (default: everything)");
  group.option("--max-malformed", max_malformed, "SHARE",
               "Share of malformed lines above which the run stops");
}

void add_training_flags(CLI::App& command, TrainingFlags& flags) {
  flags.command = &command;
  const FlagGroup own(command);
  own.open_option(kModelFlag, flags.model, kModelType,
                  "What to start from: a Hugging Face model directory, a GGUF file, or "
                  "org/name[@revision] on the Hub, with :Q4_K_M or :FILE for its GGUF files "
                  "(no default)");
  if (!flags.retrofit) {
    own.open_option("--init", flags.init, kModelType,
                    "Instead of --model: a directory with config.json and a tokenizer; weights "
                    "are drawn at random (no default)");
    own.open_option(
        "--kv-heads", flags.kv_heads, "N",
        "Start with fewer KV heads, each the mean of its group (GQA; default: the model's)");
  }
  own.open_option("--out", flags.out, "DIR",
                  "Directory for the model that is trained (no default)");
  add_data_flags(command, flags);
  add_optimizer_flags(command, flags);
  if (flags.retrofit) {
    add_retrofit_flags(command, flags);
  } else {
    add_far_dropout_flags(command, flags);
  }
  add_run_flags(command, flags);
}

train::TrainingOptions training_options(const TrainingFlags& flags) {
  const auto positive = [](int value, const char* flag) {
    require(value >= 1, "{} {}: expected 1 or more", flag, value);
    return static_cast<std::size_t>(value);
  };
  refuse_unused(flags);
  train::TrainingOptions options;
  options.steps = flags.steps;
  options.length = positive(flags.length, "--length");
  options.batch = positive(flags.batch, "--batch");
  options.micro_batch = positive(flags.micro_batch, "--micro-batch");
  options.ranks = flags.data_parallel;
  options.zero_stage = parse_zero_stage(flags.zero_stage);
  options.seed = flags.seed;
  options.adamw = {flags.beta1, flags.beta2, flags.epsilon};
  if (choose(flags.optimizer, "--optimizer", "muon", "adamw")) {
    options.muon.emplace().momentum = flags.momentum;
  }
  options.schedule = {train::parse_schedule(flags.schedule, "--schedule"), flags.steps,
                      flags.warmup, flags.decay_share, flags.final_lr};
  options.learning_rate = flags.lr;
  options.decision_rate = flags.decision_lr.value_or(flags.method == "dmc"          ? flags.lr
                                                     : flags.decisions == "adapter" ? 3e-5
                                                                                    : 1e-5);
  options.weight_decay = flags.weight_decay;
  options.clip = flags.clip;
  const engine::Computation computation = engine::parse_dtype(flags.dtype);
  options.cuda_device = engine::parse_device(flags.device);
  options.compute = computation.type;
  options.fp8_products = computation.fp8_products;
  options.activations = parse_activations(flags.activations);
  if (flags.retrofit) {
    options.retrofit = retrofit_options(flags);
  } else if (flags.far_dropout != 0.0 || flags.far_mixed != 0.0) {
    options.far_dropout = far_dropout(flags);
  }
  return options;
}

DType parse_save_dtype(const std::string& name) {
  require(name == "bf16" || name == "fp16" || name == "fp32",
          "--save-dtype {}: expected bf16, fp16 or fp32", name);
  return name == "bf16" ? DType::bf16 : name == "fp16" ? DType::f16 : DType::f32;
}

}  // namespace winnow::cli
