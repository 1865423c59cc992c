// Flags of train and retrofit.
#pragma once

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

#include "apps/winnow/flag_group.h"
#include "apps/winnow/memory_plan.h"
#include "train/options.h"

namespace winnow::cli {

struct TrainingFlags {
  CLI::App* command = nullptr;

  std::string model;
  std::string init;
  std::optional<int> kv_heads;
  std::string out;
  std::string config;

  std::vector<std::string> data;
  std::vector<std::string> valid;
  double max_malformed = 0.01;
  std::uint64_t seed = 1;
  std::int64_t steps = 1000;
  int length = 1024;
  int batch = 8;
  int micro_batch = 1;
  int data_parallel = 1;
  int zero_stage = 1;
  int threads = 0;
  MemoryElsewhere memory;

  std::string optimizer = "adamw";
  double momentum = 0.95;
  double lr = 3e-4;
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-5;
  double clip = 1.0;
  std::string schedule = "cosine";
  std::int64_t warmup = 100;
  double decay_share = 1.0;
  double final_lr = 0.1;

  double far_dropout = 0.0;
  double far_mixed = 0.0;
  int far_window = 64;
  std::vector<std::string> far_heads;

  std::string device = "cpu";
  std::string activations = "auto";
  std::string dtype = "bf16";
  std::string save_dtype = "bf16";
  std::int64_t save_every = 100;
  std::int64_t eval_every = 0;
  std::vector<std::int64_t> keep_at;
  std::int64_t valid_tokens = 32768;

  std::string method = "dms";
  std::string decisions = "borrowed";
  std::string eviction = "delayed";
  std::string per = "head";
  int window = 256;
  int shift = 1;
  int channel = -1;
  int merge_span = 12;
  float scale = 100.0F;
  float offset = 5.0F;
  std::optional<float> final_offset;
  float tau = 0.1F;

  double target_cr = 4.0;
  std::optional<std::int64_t> fade_steps;
  std::optional<std::int64_t> ramp_steps;
  std::optional<double> decision_lr;
  std::string ramp = "parabola";
  std::string main_loss = "distillation";
  std::string divergence = "forward";
  std::string loss = "price";
  std::string prior = "global";
  double spread_weight = 0.0;
  double price_gain = 4.0;
  double price_rate = 0.04;
  double shortfall_weight = 2.0;
  double excess_weight = 1e-3;
  double excess_limit = 6.0;

  bool retrofit = false;  // the command is retrofit, not train
  bool mask_prompts = false;
  bool resume = false;
  bool dry_run = false;
  bool keep_after_rope = false;
  bool uniform_weights = false;
  bool fixed_pooling = false;
};

/// --mask-prompts and --max-malformed: how training documents are read.
void add_document_flags(const FlagGroup& group, bool& mask_prompts, double& max_malformed);
/// Adds the flags that train and retrofit share, or all flags of retrofit.
void add_training_flags(CLI::App& command, TrainingFlags& flags);

/// The options, with flags checked against each other; train::validate() checks the model, too.
train::TrainingOptions training_options(const TrainingFlags& flags);

/// "bf16", "fp16" or "fp32".
DType parse_save_dtype(const std::string& name);

}  // namespace winnow::cli
