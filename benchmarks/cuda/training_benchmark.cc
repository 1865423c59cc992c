// Updates of a model with random weights on CUDA devices: tokens per second, utilisation, memory.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "apps/winnow/shapes.h"
#include "base/cuda/device.h"
#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"
#include "parallel/on_ranks.h"
#include "train/backend.h"
#include "train/flops.h"
#include "train/partition.h"
#include "train/sharding.h"

namespace {

using namespace winnow;
using namespace winnow::train;

struct Flags {
  std::map<std::string, std::string> values{
      {"shape", "llama-3.2-1b"}, {"length", "4096"},        {"sequences", "4"},
      {"micro-batch", "4"},      {"decisions", "borrowed"}, {"window", "256"},
      {"updates", "3"},          {"activations", "keep"},   {"ranks", "1"},
      {"zero-stage", "1"},       {"dtype", "bf16"},         {"json", ""}};
  Flags(int argc, char** argv) {
    for (int i = 1; i + 1 < argc; i += 2) {
      const std::string name = std::string(argv[i]).substr(2);
      require(values.contains(name), "there is no --{}", name);
      values[name] = argv[i + 1];
    }
  }
  [[nodiscard]] std::size_t size(const std::string& name) const {
    return std::stoull(values.at(name));
  }
};

// One block of random weights that every tensor is a view of.
class RandomWeights {
 public:
  explicit RandomWeights(const model::ModelSpec& config) : config_(config) {
    for (const auto& [name, shape] : tensor_shapes(config)) {
      shapes_.emplace(name, shape);
    }
    const auto most =
        static_cast<std::size_t>(config.vocab) * static_cast<std::size_t>(config.hidden);
    matrix_ = Buffer<bf16>(most);
    std::size_t widest = 0;
    for (const auto& [name, shape] : shapes_) {
      widest = std::max(widest, shape.size() == 1 ? static_cast<std::size_t>(shape[0]) : 0);
    }
    vector_.assign(widest, 1.0F);
    parallel_ranges(most, [this](std::size_t begin, std::size_t end, int) {
      Random random(7, begin);
      for (std::size_t i = begin; i < end; ++i) {
        matrix_[i] = to_bf16(static_cast<float>((random.uniform() - 0.5) * 0.07));
      }
    });
  }
  [[nodiscard]] std::optional<TensorView> find(const std::string& name) const {
    const auto found = shapes_.find(name);
    if (found == shapes_.end()) {
      return std::nullopt;
    }
    const bool vector = found->second.size() == 1;
    return TensorView{vector ? DType::f32 : DType::bf16, found->second,
                      vector ? reinterpret_cast<const std::byte*>(vector_.data())
                             : reinterpret_cast<const std::byte*>(matrix_.data())};
  }

 private:
  model::ModelSpec config_;
  std::map<std::string, Shape> shapes_;
  Buffer<bf16> matrix_;
  std::vector<float> vector_;
};

Batch random_batch(std::size_t sequences, std::size_t length, int vocab) {
  Random random(3);
  Batch batch;
  for (std::size_t t = 0; t < sequences * length; ++t) {
    batch.tokens.push_back(static_cast<std::int32_t>(random.bits() % static_cast<unsigned>(vocab)));
    batch.targets.push_back(batch.tokens.back());
    batch.weights.push_back(1.0F / static_cast<float>(sequences * length));
    batch.first_key.push_back(static_cast<std::int32_t>(t / length * length));
  }
  return batch;
}

TrainingOptions options_of(const Flags& flags) {
  TrainingOptions options;
  options.steps = static_cast<std::int64_t>(flags.size("updates"));
  options.length = flags.size("length");
  options.batch = flags.size("sequences");
  options.micro_batch = flags.size("micro-batch");
  options.cuda_device = 0;
  options.ranks = static_cast<int>(flags.size("ranks"));
  options.zero_stage = flags.size("zero-stage") == 3 ? ZeroStage::everything : ZeroStage::moments;
  options.activations =
      flags.values.at("activations") == "recompute" ? Activations::recompute : Activations::keep;
  const std::string dtype = flags.values.at("dtype");
  require(dtype == "bf16" || dtype == "fp8", "--dtype {}: expected bf16 or fp8", dtype);
  options.fp8_products = dtype == "fp8";
  options.learning_rate = 1e-5;
  options.decision_rate = 1e-5;
  const std::string decisions = flags.values.at("decisions");
  if (decisions != "none") {
    auto& retrofit = options.retrofit.emplace();
    retrofit.dms.window = static_cast<int>(flags.size("window"));
    retrofit.dms.source = decisions == "adapter" ? model::DmsConfig::Source::adapter
                                                 : model::DmsConfig::Source::borrowed;
  }
  return options;
}

void fill(Parameters& parameters, const RandomWeights& weights) {
  for (const Parameter& parameter : parameters.list()) {
    if (const auto tensor = weights.find(parameter.name)) {
      Buffer<float> values(parameter.count);
      widen(*tensor, values.span());
      parameters.set(parameter.offset, values.span());
    }
  }
}

// One update, as in Trainer.
PassSums update(Backend& backend, const Parameters& parameters, const TrainingOptions& options,
                const model::ModelSpec& config, const Batch& batch, std::int64_t step, int rank) {
  DecisionPass pass;
  if (options.retrofit) {
    pass.mode = DecisionPass::Mode::sampled;
  }
  const std::vector<DecisionLoss> losses(
      options.retrofit ? static_cast<std::size_t>(config.compressing_before(config.layer_count()))
                       : 0,
      {-1e-6F, 1e-9F, 6.0F});
  backend.begin_update();
  const auto [first, last] = share_of(options.batch / options.micro_batch, rank, options.ranks);
  for (std::size_t i = first; i < last; ++i) {
    pass.noise = static_cast<std::uint64_t>(step) * 1000 + i;
    backend.forward(batch, pass,
                    options.retrofit ? MainLoss::distillation : MainLoss::language_model);
    backend.backward(losses);
  }
  const PassSums sums = backend.finish();
  for (const Role role : {Role::embedding, Role::matrix, Role::vector, Role::decision}) {
    const auto [begin, end] = parameters.range(role);
    backend.apply(
        AdamW::Update{begin, end, step, options.learning_rate, 0.0, clip_factor(sums.norm, 1.0)});
  }
  backend.end_update();
  return sums;
}

void run_rank(const Flags& flags, const model::ModelSpec& base, const RandomWeights& weights,
              parallel::Communicator& ranks) {
  const TrainingOptions options = options_of(flags);
  const model::ModelSpec config = student_config(options, base);
  cuda::use_device(ranks.rank());
  const std::size_t before = cuda::free_memory();
  const Sharding sharding(ParameterList(config, trained_part(config)), options.zero_stage,
                          ranks.rank(), ranks.size(), false);
  Parameters parameters(config, trained_part(config),
                        options.zero_stage == ZeroStage::everything ? &sharding : nullptr);
  fill(parameters, weights);
  const std::unique_ptr<Backend> backend = make_backend(
      options, base, [&weights](const std::string& name) { return weights.find(name); }, parameters,
      ranks);
  ranks.meet();
  const Batch batch = random_batch(options.micro_batch, options.length, base.vocab);
  const auto tokens = static_cast<double>(options.batch * options.length);
  nlohmann::ordered_json json{{"flags", flags.values}, {"seconds", nlohmann::json::array()}};
  using Clock = std::chrono::steady_clock;
  std::vector<double> measured;
  for (std::size_t i = 0; i < flags.size("updates") + 2; ++i) {  // the first two do not count
    const auto start = Clock::now();
    const PassSums sums = update(*backend, parameters, options, config, batch,
                                 static_cast<std::int64_t>(i) + 1, ranks.rank());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    json["loss"] = sums.loss;
    json["seconds"].push_back(seconds);
    if (i >= 2) {
      measured.push_back(seconds);
    }
  }
  if (ranks.rank() != 0) {
    return ranks.meet();
  }
  std::ranges::nth_element(measured, measured.begin() + static_cast<long>(measured.size() / 2));
  const double typical = measured[measured.size() / 2];
  const double flops = flops_per_token(options, base) * tokens;
  json["tokens_per_second"] = tokens / typical;
  json["tflops"] = flops / typical * 1e-12;
  json["bytes"] = before - cuda::free_memory();
  std::puts(json.dump().c_str());
  if (const std::string file = flags.values.at("json"); !file.empty()) {
    std::ofstream(file) << json.dump(1) << "\n";
  }
  ranks.meet();  // other ranks may use its memory
}

void run(const Flags& flags) {
  const auto base = cli::find_shape(flags.values.at("shape"));
  require(base.has_value(), "--shape {}: unknown", flags.values.at("shape"));
  validate(options_of(flags), *base);
  const RandomWeights weights(*base);
  parallel::on_ranks(
      static_cast<int>(flags.size("ranks")), "--ranks",
      [&](parallel::Communicator& ranks) { run_rank(flags, *base, weights, ranks); });
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(Flags(argc, argv));
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
