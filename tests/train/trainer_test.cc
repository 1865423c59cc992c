#include "train/trainer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <limits>
#include <map>

#include "base/threads.h"
#include "train/export.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

using testing::World;
using Source = model::DmsConfig::Source;

std::vector<double> losses_of(Trainer& trainer, int steps) {
  std::vector<double> losses(static_cast<std::size_t>(steps));
  std::ranges::generate(losses, [&trainer] { return trainer.step().loss; });
  return losses;
}

TEST(Trainer, LearnsALanguage) {
  const World world;
  Trainer trainer(testing::language_options(), world.base(), world.shards());
  const auto losses = losses_of(trainer, 60);
  EXPECT_GT(losses.front(), 3.0);  // of 33 tokens
  EXPECT_LT(losses.back(), 1.7);
}

TEST(Trainer, LearnsWithMuonAndFarDropout) {
  const World world;
  Trainer trainer(testing::pretraining_options(), world.base(), world.shards());
  const auto losses = losses_of(trainer, 60);
  EXPECT_LT(losses.back(), 1.7);
}

TEST(Trainer, DropsOnlyWhatItIsToldTo) {
  const World world;
  const auto first_loss = [&](double share, std::uint64_t seed) {
    TrainingOptions options = testing::pretraining_options();
    options.seed = seed;
    options.far_dropout->share = share;
    options.far_dropout->mixed = 0.0;
    return Trainer(options, world.base(), world.shards()).step().loss;
  };
  TrainingOptions plain = testing::language_options();
  const double expected = Trainer(plain, world.base(), world.shards()).step().loss;
  EXPECT_EQ(first_loss(0.0, plain.seed), expected);
  EXPECT_NE(first_loss(1.0, plain.seed), expected);
}

TEST(Trainer, AccumulatesWhatOneLargeBatchGives) {
  const World world;
  TrainingOptions options = testing::language_options();
  options.micro_batch = 4;
  Trainer whole(options, world.base(), world.shards());
  options.micro_batch = 1;
  Trainer parts(options, world.base(), world.shards());
  for (int i = 0; i < 3; ++i) {
    const StepReport a = whole.step();
    const StepReport b = parts.step();
    EXPECT_NEAR(a.loss, b.loss, 1e-5);
    EXPECT_NEAR(a.norm, b.norm, 1e-4);
    EXPECT_EQ(a.tokens, b.tokens);
  }
}

TEST(Trainer, TheStudentStartsAsItsTeacher) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const World world(testing::tiny_config(family));
    for (const TrainingOptions& options : testing::every_retrofit()) {
      Trainer trainer(options, world.base(), world.shards());
      EXPECT_LT(trainer.check_student_is_teacher(), 1e-6);
      // check_student_is_teacher() must not change anything.
      Trainer other(options, world.base(), world.shards());
      EXPECT_EQ(trainer.step().loss, other.step().loss);
    }
  }
}

TEST(Trainer, EvictsWhatItIsToldTo) {
  const World world;
  for (TrainingOptions options : testing::every_retrofit()) {
    for (const EvictionLoss eviction : {EvictionLoss::price, EvictionLoss::one_sided}) {
      options.steps = 120;
      options.decision_rate = options.retrofit->dmc ? 0.1 : 5e-3;
      options.retrofit->eviction = eviction;
      Trainer trainer(options, world.base(), world.shards());
      StepReport report;
      for (int i = 0; i < 120; ++i) {
        report = trainer.step();
        ASSERT_EQ(report.eviction.has_value(), i >= options.retrofit->fade_steps);
      }
      EXPECT_DOUBLE_EQ(report.eviction->target, 2.0 / 3.0);
      EXPECT_NEAR(report.eviction->share, 2.0 / 3.0, 0.15)
          << options.retrofit->dmc.has_value() << " " << static_cast<int>(eviction);
    }
  }
}

TEST(Trainer, AnAdapterLeavesTheModelAlone) {
  const World world;
  Trainer trainer(testing::retrofit_options(Source::adapter), world.base(), world.shards());
  losses_of(trainer, 5);
  const ExportedModel model = export_model(trainer, DType::f32);
  int adapters = 0;
  for (const auto& [name, tensor] : model.tensors) {
    if (world.base().has(name)) {
      const TensorView& before = world.base().tensor(name);
      ASSERT_EQ(tensor.bytes(), before.bytes());
      EXPECT_EQ(std::memcmp(tensor.data, before.data, tensor.bytes()), 0) << name;
    } else {
      ++adapters;
    }
  }
  EXPECT_EQ(adapters, 2 * world.base().spec().layer_count());
}

TEST(Trainer, UniformWeightsStayThat) {
  const World world(testing::tiny_config("qwen2"));
  for (const bool uniform : {false, true}) {
    TrainingOptions options = testing::dmc_options();
    options.retrofit->fade_steps = 1;
    options.retrofit->uniform_weights = uniform;
    Trainer trainer(options, world.base(), world.shards());
    losses_of(trainer, 5);
    const auto parameters = trainer.parameters();
    for (const char* part : {"weight", "bias"}) {
      const auto omega = parameters->view(omega_name(0, part)).as<float>();
      EXPECT_EQ(std::ranges::all_of(omega, [](float x) { return x == 0.0F; }), uniform);
    }
  }
}

// How different the evicted shares of a layer's heads are.
double spread(const EvictionReport& report, std::size_t heads) {
  double sum = 0.0;
  for (std::size_t i = 0; i < report.shares.size(); i += heads) {
    const auto [least, most] = std::ranges::minmax(std::span(report.shares).subspan(i, heads));
    sum += most - least;
  }
  return sum;
}

TEST(Trainer, HeadsOfALayerEvictAlikeIfTheyAreTold) {
  const World world;
  const auto spread_of = [&](TrainingOptions options) {
    options.steps = 100;
    options.decision_rate = 0.1;
    Trainer trainer(options, world.base(), world.shards());
    double sum = 0.0;
    for (int i = 0; i < 100; ++i) {
      const StepReport report = trainer.step();
      sum += i >= 80 ? spread(*report.eviction, report.eviction->shares.size() / 2) : 0.0;
    }
    return sum / 20;
  };
  const double free = spread_of(testing::dmc_options());
  EXPECT_GT(free, 0.1);
  EXPECT_LT(spread_of(testing::dmc_ablations()[1]), 0.6 * free);
}

// Runs steps, from a state if there is one; returns the losses.
std::vector<double> continued(const World& world, const TrainingOptions& options, int before,
                              int after) {
  std::vector<double> losses;
  {
    Trainer first(options, world.base(), world.shards());
    losses = losses_of(first, before);
    first.save_state(world.path("state"), {});
  }
  Trainer second(options, world.base(), world.shards());
  second.load_state(world.path("state"), {});
  EXPECT_EQ(second.steps_done(), before);
  const auto rest = losses_of(second, after);
  losses.insert(losses.end(), rest.begin(), rest.end());
  return losses;
}

TEST(Trainer, ResumesToTheBit) {
  const World world;
  std::vector<TrainingOptions> cases = testing::every_retrofit();
  cases[0].retrofit->fade_steps = 2;
  cases[2].retrofit->fade_steps = 2;
  cases[2].retrofit->prior = EvictionPrior::layer;
  cases.push_back(testing::language_options());
  cases.push_back(testing::pretraining_options());
  for (TrainingOptions& options : testing::dmc_ablations()) {
    options.retrofit->fade_steps = 2;
    cases.push_back(options);
  }
  for (const TrainingOptions& options : cases) {
    set_threads(1);
    Trainer whole(options, world.base(), world.shards());
    const auto expected = losses_of(whole, 6);
    for (const int threads : {1, 3}) {
      set_threads(threads);
      EXPECT_EQ(continued(world, options, 3, 3), expected);
    }
  }
  set_threads(0);
}

TEST(Trainer, KeepsItsWordAboutTheRecipe) {
  const World world;
  Trainer trainer(testing::language_options(), world.base(), world.shards());
  trainer.save_state(world.path("state"), {{"lr", 0.01}, {"steps", 60}});
  EXPECT_NO_THROW(trainer.load_state(world.path("state"), {{"lr", 0.01}, {"steps", 60}}));
  EXPECT_NE(error_of([&] {
              trainer.load_state(world.path("state"), {{"lr", 0.02}, {"steps", 60}});
            }).find("lr"),
            std::string::npos);
}

// Simulates a full disk by a limit on file sizes.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(Trainer, AFullDiskLeavesTheLastCheckpoint) {
  const World world;
  Trainer trainer(testing::language_options(), world.base(), world.shards());
  trainer.step();
  trainer.save_state(world.path("state"), {});
  const double loss = trainer.step().loss;
  {
    const FileSizeLimit limit(1000);
    EXPECT_NE(error_of([&] { trainer.save_state(world.path("state"), {}); }).find("cannot write"),
              std::string::npos);
  }
  Trainer other(testing::language_options(), world.base(), world.shards());
  other.load_state(world.path("state"), {});
  EXPECT_EQ(other.steps_done(), 1);
  EXPECT_EQ(other.step().loss, loss);
}

TEST(Trainer, NamesTheLayerThatIsNotFinite) {
  model::ModelSpec spec = testing::tiny_config("llama");
  const World world(spec);
  // A model with one infinite weight.
  TensorMap tensors = world.base().tensors();
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto original = tensors.at(name).as<float>();
  std::vector<float> broken(original.begin(), original.end());
  broken[3] = std::numeric_limits<float>::infinity();
  tensors[name].data = reinterpret_cast<const std::byte*>(broken.data());
  model::save_checkpoint(world.path("broken"), spec, tensors);
  const model::Checkpoint base = model::Checkpoint::open(world.path("broken"));
  Trainer trainer(testing::language_options(), base, world.shards());
  const std::string error = error_of([&] { trainer.step(); });
  EXPECT_NE(error.find("step 1"), std::string::npos) << error;
  EXPECT_NE(error.find("layer 1"), std::string::npos) << error;
  EXPECT_EQ(trainer.steps_done(), 0);
}

TEST(Trainer, RefusesTokensThatTheModelLacks) {
  const World world;
  ShardWriter writer(world.path("strange"));
  writer.add({{1, 2, 33, 4}, {}});
  writer.finish({});
  const Shards shards(world.path("strange"));
  Trainer trainer(testing::language_options(), world.base(), shards);
  const std::string error = error_of([&] { trainer.step(); });
  EXPECT_EQ(error, "the training data has a token 33, the model a vocabulary of 33");
}

// A base model with one NaN weight.
TEST(Trainer, SaysWhereValuesThatAreNotFiniteComeFrom) {
  const World world;
  for (const auto& [tensor, place] :
       std::map<std::string, std::string>{{"model.embed_tokens.weight", "the embedding"},
                                          {"model.layers.1.mlp.down_proj.weight", "layer 1"},
                                          {"model.norm.weight", "the head"}}) {
    TensorMap tensors = world.base().tensors();
    const auto values = tensors.at(tensor).as<float>();
    std::vector<float> broken(values.begin(), values.end());
    std::ranges::fill(broken, std::numeric_limits<float>::quiet_NaN());
    tensors.at(tensor).data = reinterpret_cast<const std::byte*>(broken.data());
    model::save_checkpoint(world.path("broken"), world.base().spec(), tensors);
    const model::Checkpoint base = model::Checkpoint::open(world.path("broken"));
    Trainer trained(testing::language_options(), base, world.shards());
    EXPECT_EQ(error_of([&] { trained.step(); }),
              "step 1: the loss is not finite; the first values that are not come from " + place);
    Trainer student(testing::retrofit_options(Source::borrowed), base, world.shards());
    EXPECT_EQ(error_of([&] { student.check_student_is_teacher(); }),
              "before the first step: the loss is not finite; the first values that are not come "
              "from " +
                  place);
  }
}

TEST(Trainer, RefusesWhatMakesNoSense) {
  const World world;
  const auto refusal = [&](const auto& change) {
    TrainingOptions options = testing::retrofit_options(Source::borrowed);
    change(options);
    return error_of([&] { validate(options, world.base().spec()); });
  };
  EXPECT_EQ(refusal([](TrainingOptions&) {}), "no error");
  EXPECT_TRUE(refusal([](auto& o) { o.steps = 0; }).starts_with("--steps 0"));
  EXPECT_TRUE(refusal([](auto& o) { o.length = 1000; }).starts_with("--length 1000"));
  EXPECT_TRUE(refusal([](auto& o) { o.micro_batch = 3; }).starts_with("--micro-batch 3"));
  EXPECT_TRUE(refusal([](auto& o) { o.retrofit->dms.window = 32; }).starts_with("--window 32"));
  EXPECT_TRUE(refusal([](auto& o) { o.retrofit->dms.shift = 6; }).starts_with("--shift 6"));
  EXPECT_TRUE(
      refusal([](auto& o) { o.retrofit->ramp.target_cr = 0.5; }).starts_with("--target-cr 0.5"));
  EXPECT_TRUE(refusal([](auto& o) { o.retrofit->fade_steps = 60; }).starts_with("--fade-steps 60"));
  EXPECT_TRUE(refusal([](auto& o) { o.adamw.beta1 = 1.0; }).starts_with("--beta1 1"));
  EXPECT_TRUE(
      refusal([](auto& o) { o.retrofit->spread_weight = -1.0; }).starts_with("--spread-weight -1"));
  const double not_a_number = std::numeric_limits<double>::quiet_NaN();
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(
      refusal([&](auto& o) { o.weight_decay = infinite; }).starts_with("--weight-decay inf"));
  EXPECT_TRUE(
      refusal([&](auto& o) { o.decision_rate = infinite; }).starts_with("--decision-lr inf"));
  EXPECT_TRUE(
      refusal([&](auto& o) { o.retrofit->price.gain = not_a_number; }).starts_with("--price-gain"));
  EXPECT_TRUE(refusal([&](auto& o) {
                o.retrofit->one_sided_weight = -1.0;
              }).starts_with("--shortfall-weight -1"));
  // Settings that config.json cannot express must be refused before training.
  EXPECT_TRUE(refusal([&](auto& o) {
                o.retrofit->final_offset = static_cast<float>(not_a_number);
              }).starts_with("--final-offset nan"));
  EXPECT_TRUE(refusal([](auto& o) {
                o.retrofit->final_offset = 1e30F;
              }).starts_with("config.json: dms_initial_alpha_offset"));
  EXPECT_TRUE(refusal([](auto& o) {
                o.retrofit->ramp.target_cr = 1e9;
              }).starts_with("--target-cr 1000000000: "));
  EXPECT_TRUE(refusal([](auto& o) {
                o.retrofit->dmc.emplace().pooled = 13;
              }).starts_with("--fixed-pooling: entries of 13 tokens"));
  EXPECT_TRUE(refusal([](auto& o) { o.muon = {1.0}; }).starts_with("--momentum 1"));
  EXPECT_EQ(refusal([](auto& o) { o.fp8_products = true; }),
            "--dtype fp8: runs on a CUDA device only; the CPU computes in bf16 or fp32");
  EXPECT_TRUE(refusal([](auto& o) {
                o.fp8_products = true;
                o.compute = DType::bf16;
                o.cuda_device = 0;
                o.zero_stage = ZeroStage::everything;
              }).starts_with("--dtype fp8 with --zero-stage 3"));
  EXPECT_TRUE(refusal([](auto& o) {
                o.retrofit->dms.source = Source::adapter;
                o.muon.emplace();
              }).starts_with("--optimizer muon"));
  EXPECT_TRUE(refusal([](auto& o) { o.far_dropout.emplace(); }).starts_with("--far-dropout"));
  const auto far = [&](const auto& change) {
    TrainingOptions options = testing::pretraining_options();
    change(*options.far_dropout);
    return error_of([&] { validate(options, world.base().spec()); });
  };
  EXPECT_EQ(far([](auto&) {}), "no error");
  EXPECT_TRUE(far([](auto& f) { f.share = 1.5; }).starts_with("--far-dropout 1.5"));
  EXPECT_TRUE(far([](auto& f) { f.mixed = 0.95; }).starts_with("--far-mixed 0.95"));
  EXPECT_TRUE(far([](auto& f) { f.window = 32; }).starts_with("--far-window 32"));
  EXPECT_TRUE(far([](auto& f) { f.far_heads = {{0, 2}}; }).starts_with("--far-heads 0:2"));
  EXPECT_TRUE(far([](auto& f) { f.far_heads = {{2, 0}}; }).starts_with("--far-heads 2:0"));
}

TEST(Trainer, RefusesFp8OfWidthsThatItCannotMultiply) {
  TrainingOptions options = testing::language_options();
  options.cuda_device = 0;
  options.compute = DType::bf16;
  options.fp8_products = true;
  model::ModelSpec spec = testing::tiny_config("llama");
  EXPECT_EQ(error_of([&] { validate(options, spec); }),
            "--dtype fp8: the model has 24 hidden channels, products in fp8 need a multiple of 16");
  spec.hidden = 32;
  EXPECT_EQ(error_of([&] { validate(options, spec); }), "no error");
}

TEST(Trainer, RefusesMixersSideBySide) {
  const auto spec = testing::tiny_config("falcon_h1", testing::kTinySizes, {{"mamba_n_heads", 4}});
  constexpr const char* kError =
      "the model has recurrent mixers beside attention in one layer: it cannot be trained or "
      "retrofitted";
  EXPECT_EQ(error_of([&] { validate(testing::pretraining_options(), spec); }), kError);
  EXPECT_EQ(error_of([&] { validate(testing::retrofit_options(Source::borrowed), spec); }), kError);
  const auto alone = testing::tiny_config("nemotron_h", testing::kTinySizes,
                                          {{"layers_block_type", {"mamba", "mlp", "attention"}}});
  EXPECT_EQ(error_of([&] { validate(testing::pretraining_options(), alone); }),
            "the model has layers without a feed-forward network: it cannot be trained or "
            "retrofitted");
}

TEST(Trainer, RefusesDmcWhereValuesAreKeys) {
  const auto spec =
      testing::tiny_config("gemma4_text", testing::kTinySizes, winnow::testing::gemma4_keys()[1]);
  validate(testing::retrofit_options(Source::borrowed), spec);
  EXPECT_EQ(error_of([&] { validate(testing::dmc_options(), spec); }),
            "--method dmc: the model's values are its keys, and DMC takes a channel of keys only");
}

}  // namespace
}  // namespace winnow::train
