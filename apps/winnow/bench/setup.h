// The options of winnow bench, and the model that it measures.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "apps/winnow/bench/first_token.h"
#include "apps/winnow/bench/fixed_batch.h"
#include "apps/winnow/bench/full_load.h"
#include "model/config.h"
#include "winnow/llm.h"

namespace winnow::cli {

struct BenchOptions {
  LoadOptions load;
  std::string shape;
  std::string draft_shape;
  std::optional<int> context;
  std::optional<int> depth;
  std::optional<int> prefill;
  int generate = 128;
  std::vector<int> batches = {1};
  bool fit = false;
  std::optional<int> computed;
  std::string lengths;               // for --load, "IN/OUT"
  std::optional<int> requests;       // with --load
  std::optional<int> max_sequences;  // with --load
  std::optional<int> prefix;
  int repeat = 3;
  bool growth = false;
  std::optional<double> evict_rate;
  std::optional<double> head_spread;
  bool json = false;
};

/// The parameters of the run, determined before it starts.
struct Setup {
  std::string name;
  model::ModelSpec config;
  engine::EngineConfig engine;
  BenchPlan plan;
  std::optional<FullLoadPlan> load;           // instead of `plan`
  std::optional<FirstTokenPlan> first_token;  // likewise
  std::optional<double> evict_rate;
  double head_spread = 0.0;
};

/// Determines the parameters in `setup` and makes the model. Error: names the flag.
std::unique_ptr<const engine::LoadedModel> place_model(const BenchOptions& options, Setup& setup);

}  // namespace winnow::cli
