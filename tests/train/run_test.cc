// Whole runs: checkpoints, metrics, the resulting model.
#include "train/run.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/threads.h"
#include "checkpoint/checkpoint_testing.h"
#include "train/initial_model.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

using nlohmann::json;
using testing::World;
using Source = model::DmsConfig::Source;

RunOptions run_options(const World& world, const std::string& out) {
  RunOptions options;
  options.out = world.path(out);
  options.save_every = 4;
  options.save_type = DType::f32;
  return options;
}

std::vector<json> metrics_of(const World& world, const std::string& out) {
  std::vector<json> lines;
  std::ifstream file(world.path(out) / "training/metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    lines.push_back(json::parse(line));
  }
  return lines;
}

std::vector<double> losses_in(const std::vector<json>& metrics) {
  std::vector<double> losses;
  for (const json& line : metrics) {
    EXPECT_EQ(line.at("step"), losses.size() + 1);
    losses.push_back(line.at("loss"));
  }
  return losses;
}

TrainingOptions short_run() {
  TrainingOptions options = testing::retrofit_options(Source::borrowed);
  options.steps = 10;
  options.retrofit->fade_steps = 3;
  return options;
}

TEST(Run, WritesAModelThatTheEngineRuns) {
  const World world;
  Trainer trainer(short_run(), world.base(), world.shards());
  EXPECT_TRUE(run_training(trainer, nullptr, run_options(world, "out")));
  const model::Checkpoint model = model::Checkpoint::open(world.path("out"));
  EXPECT_EQ(model.spec().dms, [] {
    model::DmsConfig dms = short_run().retrofit->dms;
    dms.target_cr = 3.0;
    return dms;
  }());
  EXPECT_EQ(losses_in(metrics_of(world, "out")).size(), 10U);
}

// A kept model is what a run that ends there writes, with the ratio of that moment.
TEST(Run, KeepsModelsOnTheWay) {
  const World world;
  RunOptions options = run_options(world, "whole");
  options.keep_at = {6};
  Trainer whole(short_run(), world.base(), world.shards());
  run_training(whole, nullptr, options);

  RunOptions stopped = run_options(world, "stopped");
  int left = 6;
  stopped.should_stop = [&left] { return left-- == 0; };
  Trainer part(short_run(), world.base(), world.shards());
  EXPECT_FALSE(run_training(part, nullptr, stopped));

  const model::Checkpoint kept = model::Checkpoint::open(world.path("whole") / "step-6");
  expect_same_tensors(kept.tensors(), model::Checkpoint::open(world.path("stopped")).tensors());
  const double share = short_run().retrofit->ramp.share(6 - 1 - 3);
  EXPECT_NEAR(kept.spec().dms->target_cr, 1.0 / (1.0 - share), 0.005);
  EXPECT_LT(kept.spec().dms->target_cr, 3.0);
}

// Wherever a run was interrupted, the resumed one repeats it to the bit.
TEST(Run, InterruptedAndTakenUpIsTheSame) {
  const World world;
  Trainer whole(short_run(), world.base(), world.shards());
  run_training(whole, nullptr, run_options(world, "whole"));

  RunOptions options = run_options(world, "parts");
  int left = 5;
  options.should_stop = [&left] { return left-- == 0; };
  Trainer first(short_run(), world.base(), world.shards());
  EXPECT_FALSE(run_training(first, nullptr, options));
  EXPECT_EQ(first.steps_done(), 5);
  options.should_stop = {};
  options.resume = true;
  Trainer second(short_run(), world.base(), world.shards());
  EXPECT_TRUE(run_training(second, nullptr, options));

  EXPECT_EQ(losses_in(metrics_of(world, "parts")), losses_in(metrics_of(world, "whole")));
  expect_same_tensors(model::Checkpoint::open(world.path("whole")).tensors(),
                      model::Checkpoint::open(world.path("parts")).tensors());
}

// As on a full disk: the state is saved, but the model cannot be written.
TEST(Run, AFailedSaveNamesTheStepThatIsWhole) {
  const World world;
  RunOptions options = run_options(world, "out");
  const auto config = world.path("out") / "config.json";
  options.on_begin = [&] { std::filesystem::create_directories(config / "in the way"); };
  Trainer first(short_run(), world.base(), world.shards());
  std::string message;
  try {
    run_training(first, nullptr, options);
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_THAT(message, ::testing::HasSubstr("--resume"));
  EXPECT_THAT(message, ::testing::HasSubstr(
                           fmt::format("the state of step {} is whole", first.steps_done())));

  std::filesystem::remove_all(config);
  options.on_begin = {};
  options.resume = true;
  Trainer second(short_run(), world.base(), world.shards());
  EXPECT_TRUE(run_training(second, nullptr, options));
}

// Killed between checkpoints: only the steps since then are repeated, and their metrics replaced.
TEST(Run, KilledLosesWhatCameAfterTheCheckpoint) {
  const World world;
  struct Killed {};
  RunOptions options = run_options(world, "out");
  options.on_step = [](const StepReport& report) {
    if (report.step == 7) {
      throw Killed();
    }
  };
  Trainer first(short_run(), world.base(), world.shards());
  EXPECT_THROW(run_training(first, nullptr, options), Killed);
  EXPECT_EQ(metrics_of(world, "out").size(), 7U);
  {  // an incomplete line
    std::ofstream(world.path("out") / "training/metrics.jsonl", std::ios::app) << "{\"step\": 8, ";
  }
  options.on_step = {};
  options.resume = true;
  Trainer second(short_run(), world.base(), world.shards());
  EXPECT_TRUE(run_training(second, nullptr, options));
  Trainer whole(short_run(), world.base(), world.shards());
  run_training(whole, nullptr, run_options(world, "whole"));
  EXPECT_EQ(losses_in(metrics_of(world, "out")), losses_in(metrics_of(world, "whole")));
}

// Killed while it wrote a file: the partial file does no harm.
TEST(Run, RemovesWhatAKilledOneLeftHalfWritten) {
  const World world;
  const auto out = world.path("out");
  std::filesystem::create_directories(out / "training");
  const std::vector<std::filesystem::path> half_written{
      out / "training/state.safetensors.tmp0123456789abcdef",
      out / "model.safetensors.tmpfedcba9876543210"};
  const auto notes = out / "notes.tmp";
  for (const auto& file : half_written) {
    std::ofstream(file) << "half";
  }
  std::ofstream(notes) << "mine";
  Trainer trainer(short_run(), world.base(), world.shards());
  run_training(trainer, nullptr, run_options(world, "out"));
  for (const auto& file : half_written) {
    EXPECT_FALSE(std::filesystem::exists(file)) << file;
  }
  EXPECT_TRUE(std::filesystem::exists(notes));
}

TEST(Run, WritesAFinishedModelAgainWithAnotherOffset) {
  const World world;
  RunOptions options = run_options(world, "out");
  Trainer trainer(short_run(), world.base(), world.shards());
  run_training(trainer, nullptr, options);
  const model::Checkpoint before = model::Checkpoint::open(world.path("out"));
  TrainingOptions other = short_run();
  other.retrofit->final_offset = 7.5F;
  options.resume = true;
  Trainer again(other, world.base(), world.shards());
  EXPECT_TRUE(run_training(again, nullptr, options));
  const model::Checkpoint after = model::Checkpoint::open(world.path("out"));
  EXPECT_EQ(after.spec().dms->offset, 7.5F);
  expect_same_tensors(after.tensors(), before.tensors());
  EXPECT_EQ(losses_in(metrics_of(world, "out")).size(), 10U);
}

TEST(Run, DoesNotOverwriteAnother) {
  const World world;
  Trainer trainer(short_run(), world.base(), world.shards());
  RunOptions options = run_options(world, "out");
  options.resume = true;
  EXPECT_TRUE(error_of([&] { run_training(trainer, nullptr, options); }).starts_with("--resume"));
  options.resume = false;
  run_training(trainer, nullptr, options);
  const std::string error = error_of([&] { run_training(trainer, nullptr, options); });
  EXPECT_NE(error.find("--resume goes on"), std::string::npos) << error;
  options.out = world.path("base");
  const std::string other = error_of([&] { run_training(trainer, nullptr, options); });
  EXPECT_NE(other.find("a model is there"), std::string::npos) << other;
}

// The training pass with hard decisions and the engine on the exported model see the same text.
TEST(HeldOut, MeasuresWhatWasTrained) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    for (const Source source : {Source::borrowed, Source::adapter}) {
      const World world(testing::tiny_config(family));
      TrainingOptions options = testing::retrofit_options(source);
      options.steps = 40;
      options.decision_rate = 5e-3;
      options.retrofit->fade_steps = source == Source::borrowed ? 4 : 0;
      Trainer trainer(options, world.base(), world.shards());
      const HeldOut held_out(
          world.base(), world.shards(),
          {.context = 32, .max_tokens = 640, .compute = DType::f32, .compare = true});
      const auto model_now = [&] {
        return std::make_shared<const ExportedModel>(export_model(trainer, DType::f32));
      };
      for (int i = 0; i < 40; ++i) {
        trainer.step();
      }
      const auto after = held_out.measure(model_now(), {});
      const auto base = held_out.measure_base({});
      ASSERT_TRUE(after.divergence);
      EXPECT_EQ(after.tokens, base.tokens);
      EXPECT_GT(after.compression_ratio, 1.2);
      EXPECT_DOUBLE_EQ(base.compression_ratio, 1.0);
      EXPECT_GT(after.divergence->kld, 0.0);
      EXPECT_LT(after.divergence->kld, 0.5);
    }
  }
}

TEST(HeldOut, AnAdapterThatKnowsNothingChangesNothing) {
  const World world;
  Trainer trainer(testing::retrofit_options(Source::adapter), world.base(), world.shards());
  const HeldOut held_out(world.base(), world.shards(),
                         {.context = 32, .compute = DType::f32, .compare = true});
  const auto result = held_out.measure(
      std::make_shared<const ExportedModel>(export_model(trainer, DType::f32)), {});
  EXPECT_LT(result.divergence->kld, 1e-6);
  EXPECT_NEAR(result.nll_per_token, held_out.measure_base({}).nll_per_token, 1e-6);
  EXPECT_DOUBLE_EQ(result.compression_ratio, 1.0);
}

TEST(InitialModel, IsTheSameForASeed) {
  const World world;
  const auto write = [&](const std::string& name, std::uint64_t seed) {
    write_initial_model(world.path("base"), world.path(name), DType::f32, seed);
    return model::Checkpoint::open(world.path(name));
  };
  const model::Checkpoint a = write("a", 1);
  const model::Checkpoint b = write("b", 1);
  const model::Checkpoint c = write("c", 2);
  expect_same_tensors(a.tensors(), b.tensors());
  EXPECT_EQ(a.spec(), world.base().spec());
  const auto name = "model.embed_tokens.weight";
  EXPECT_NE(a.tensor(name).as<float>()[0], c.tensor(name).as<float>()[0]);
}

// Norms only divide at first, also if the stored weights are relative to 1.
TEST(InitialModel, NormsMultiplyByOne) {
  for (const auto& [family, expected] : {std::pair{"llama", 1.0F}, {"nemotron", 0.0F}}) {
    const World world(testing::tiny_config(family));
    write_initial_model(world.path("base"), world.path("new"), DType::f32, 1);
    const model::Checkpoint created = model::Checkpoint::open(world.path("new"));
    for (const float x : created.tensor("model.norm.weight").as<float>()) {
      EXPECT_EQ(x, expected) << family;
    }
  }
}

TEST(InitialModel, ATokenizerIsCopiedAsAWholeOrNotAtAll) {
  const TempDir directory;
  directory.write("tokenizer.json", "before");
  ::rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const ::rlimit full{1000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
  const std::string message =
      error_of([&] { copy_tokenizer(WINNOW_SOURCE_DIR "/assets/base", directory.path()); });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(message.ends_with("tokenizer.json: cannot write: File too large")) << message;
  EXPECT_EQ(directory.read("tokenizer.json"), "before");
  copy_tokenizer(WINNOW_SOURCE_DIR "/assets/base", directory.path());
  EXPECT_GT(directory.read("tokenizer.json").size(), 1000U);
}

// Factors on a layer's output must not make it 0.
TEST(InitialModel, FactorsStartAsOne) {
  const World world(
      testing::tiny_config("gemma4_text", testing::kTinySizes, winnow::testing::gemma4_keys()[1]));
  write_initial_model(world.path("base"), world.path("new"), DType::f32, 1);
  const model::Checkpoint created = model::Checkpoint::open(world.path("new"));
  for (const char* name : {"layer_scalar", "router.scale", "router.per_expert_scale"}) {
    for (const float x : created.tensor(std::string("model.layers.0.") + name).as<float>()) {
      EXPECT_EQ(x, 1.0F) << name;
    }
  }
  EXPECT_TRUE(error_of([&] {
                write_grouped_model(world.base(), world.path("x"), 1);
              }).starts_with("--kv-heads: layers of the model have heads of different shapes"));
}

TEST(GroupedModel, HasTheMeansOfItsHeads) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const World world(testing::tiny_config(family));
    write_grouped_model(world.base(), world.path("grouped"), 1);
    const model::Checkpoint grouped = model::Checkpoint::open(world.path("grouped"));
    EXPECT_EQ(grouped.spec().attention().kv_heads, 1);
    EXPECT_EQ(grouped.spec().attention().heads, world.base().spec().attention().heads);
    for (const auto& [name, tensor] : grouped.tensors()) {
      const auto before = world.base().tensor(name).as<float>();
      const auto after = tensor.as<float>();
      if (before.size() == after.size()) {
        EXPECT_TRUE(std::ranges::equal(before, after)) << name;
        continue;
      }
      ASSERT_EQ(before.size(), 2 * after.size()) << name;
      for (std::size_t i = 0; i < after.size(); ++i) {
        ASSERT_FLOAT_EQ(after[i], 0.5F * (before[i] + before[after.size() + i])) << name;
      }
    }
    EXPECT_TRUE(error_of([&] {
                  write_grouped_model(world.base(), world.path("x"), 3);
                }).starts_with("--kv-heads 3"));
  }
}

// Equal heads can be merged without a loss.
TEST(GroupedModel, OfEqualHeadsComputesTheSame) {
  auto sizes = testing::kTinySizes;
  sizes.kv_heads = 1;
  const World one(testing::tiny_config("qwen3", sizes));
  // The same model with its single head duplicated.
  sizes.kv_heads = 2;
  const model::ModelSpec spec = testing::tiny_config("qwen3", sizes);
  TensorMap tensors = one.base().tensors();
  std::map<std::string, std::vector<float>> doubled;
  for (auto& [name, tensor] : tensors) {
    if (name.find("k_proj") != std::string::npos || name.find("v_proj") != std::string::npos) {
      const auto values = tensor.as<float>();
      auto& twice = doubled[name];
      twice.assign(values.begin(), values.end());
      twice.insert(twice.end(), values.begin(), values.end());
      tensor.shape[0] *= 2;
      tensor.data = reinterpret_cast<const std::byte*>(twice.data());
    }
  }
  model::save_checkpoint(one.path("two"), spec, tensors);
  write_grouped_model(model::Checkpoint::open(one.path("two")), one.path("grouped"), 1);
  expect_same_tensors(one.base().tensors(), model::Checkpoint::open(one.path("grouped")).tensors());
}

}  // namespace
}  // namespace winnow::train
