// Whole trainings on a device: compared with the CPU's, resumed, and from the CPU's state.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "base/cuda/device.h"
#include "ops/cuda/linear/linear.h"
#include "train/export.h"
#include "train/training_world.h"

namespace winnow::train {
namespace {

using testing::World;

class CudaTrainer : public ::testing::Test {
 protected:
  void SetUp() override {
    if (winnow::cuda::device_count() == 0) {
      GTEST_SKIP() << "no CUDA device";
    }
  }
};

TrainingOptions on_device(TrainingOptions options) {
  options.compute = DType::bf16;
  options.cuda_device = 0;
  return options;
}

std::vector<TrainingOptions> every_training() {
  auto all = testing::every_retrofit();
  all.push_back(testing::language_options());
  all.push_back(testing::pretraining_options());
  std::ranges::copy(testing::dmc_ablations(), std::back_inserter(all));
  return all;
}

// For losses after a few updates in bf16.
void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i]) + 2e-4) << i;
  }
}

std::vector<double> losses_of(Trainer& trainer, int steps) {
  std::vector<double> losses(static_cast<std::size_t>(steps));
  std::ranges::generate(losses, [&trainer] { return trainer.step().loss; });
  return losses;
}

// Every update starts from the CPU's state: over many updates, the rounding of the first would
// dominate, since AdamW moves by the full rate even if a gradient is small. The distilled signal is
// a small difference of two predictions, each of which is rounded to bf16 in every layer.
TEST_F(CudaTrainer, HasTheLossesOfTheCpu) {
  for (const char* family : {"llama", "qwen2", "qwen3"}) {
    const World world(testing::tiny_config(family));
    for (TrainingOptions options : every_training()) {
      if (options.retrofit) {
        options.retrofit->dms.scale = 4.0F;  // at 100, decisions near the threshold may differ
      }
      const double tolerance = options.retrofit ? 0.08 : 0.005;
      Trainer host(options, world.base(), world.shards());
      Trainer device(on_device(options), world.base(), world.shards());
      for (int i = 0; i < 8; ++i) {
        host.save_state(world.path("state"), {});
        device.load_state(world.path("state"), {});
        const StepReport expected = host.step();
        const StepReport report = device.step();
        EXPECT_NEAR(report.loss, expected.loss, tolerance * expected.loss + 5e-5) << i;
        EXPECT_NEAR(report.norm, expected.norm, 2.0 * tolerance * expected.norm + 1e-3) << i;
        EXPECT_NEAR(report.decision_norm, expected.decision_norm,
                    tolerance * expected.decision_norm + 1e-3)
            << i;
      }
    }
  }
}

TEST_F(CudaTrainer, TheStudentStartsAsItsTeacher) {
  const World world;
  for (const TrainingOptions& options : testing::every_retrofit()) {
    Trainer trainer(on_device(options), world.base(), world.shards());
    EXPECT_LT(trainer.check_student_is_teacher(), 1e-6);
  }
}

class CudaTrainerInFp8 : public CudaTrainer {
 protected:
  void SetUp() override {
    CudaTrainer::SetUp();
    if (!IsSkipped() && !ops::cuda::has_fp8_products()) {
      GTEST_SKIP() << "the device does not multiply in fp8";
    }
  }

  static TrainingOptions in_fp8(const TrainingOptions& options) {
    TrainingOptions own = on_device(options);
    own.fp8_products = true;
    return own;
  }

  const World world_{testing::tiny_config("llama", testing::kFp8Sizes)};
};

TEST_F(CudaTrainerInFp8, TheStudentStartsAsItsTeacher) {
  for (const TrainingOptions& options : testing::every_retrofit()) {
    Trainer trainer(in_fp8(options), world_.base(), world_.shards());
    EXPECT_LT(trainer.check_student_is_teacher(), 1e-6);
  }
}

double mean_of_last(const std::vector<double>& losses, std::size_t count) {
  return std::accumulate(losses.end() - static_cast<std::ptrdiff_t>(count), losses.end(), 0.0) /
         static_cast<double>(count);
}

// On the CPU, in fp32 with rounded operands, the last losses differed by 4 %.
TEST_F(CudaTrainerInFp8, LearnsAsInBf16) {
  for (const TrainingOptions& options :
       {testing::language_options(), testing::pretraining_options()}) {
    Trainer wide(on_device(options), world_.base(), world_.shards());
    Trainer narrow(in_fp8(options), world_.base(), world_.shards());
    const auto expected = losses_of(wide, 60);
    const auto found = losses_of(narrow, 60);
    EXPECT_LT(mean_of_last(expected, 10), 0.7 * expected.front());
    EXPECT_NEAR(mean_of_last(found, 10), mean_of_last(expected, 10),
                0.25 * mean_of_last(expected, 10));
    EXPECT_NE(found, expected);
  }
}

TEST_F(CudaTrainerInFp8, EvictsWhatItIsToldTo) {
  for (TrainingOptions options : testing::every_retrofit()) {
    options = in_fp8(options);
    options.steps = 120;
    options.decision_rate = options.retrofit->dmc ? 0.1 : 5e-3;
    Trainer trainer(options, world_.base(), world_.shards());
    StepReport report;
    for (int i = 0; i < 120; ++i) {
      report = trainer.step();
    }
    EXPECT_NEAR(report.eviction->share, 2.0 / 3.0, 0.15);
  }
}

// The same trainer, so that both times use the same algorithms for products. With copies of later
// weights the losses would be others.
TEST_F(CudaTrainerInFp8, GoesOnFromAState) {
  for (const TrainingOptions& options : every_training()) {
    Trainer trainer(in_fp8(options), world_.base(), world_.shards());
    losses_of(trainer, 3);
    trainer.save_state(world_.path("state"), {});
    const auto expected = losses_of(trainer, 6);
    trainer.load_state(world_.path("state"), {});
    // Sums of a device vary in the last bit, which may decide between two codes.
    expect_near(losses_of(trainer, 6), expected, 1e-2);
  }
}

TEST_F(CudaTrainer, EvictsWhatItIsToldTo) {
  const World world;
  for (const EvictionLoss eviction : {EvictionLoss::price, EvictionLoss::one_sided}) {
    for (TrainingOptions options : testing::every_retrofit()) {
      options = on_device(options);
      options.steps = 120;
      options.decision_rate = options.retrofit->dmc ? 0.1 : 5e-3;
      options.retrofit->eviction = eviction;
      Trainer trainer(options, world.base(), world.shards());
      StepReport report;
      for (int i = 0; i < 120; ++i) {
        report = trainer.step();
      }
      EXPECT_NEAR(report.eviction->share, 2.0 / 3.0, 0.15);
    }
  }
}

TEST_F(CudaTrainer, GoesOnFromAState) {
  const World world;
  for (const TrainingOptions& options : every_training()) {
    Trainer whole(on_device(options), world.base(), world.shards());
    const auto expected = losses_of(whole, 6);
    for (const bool begins_on_device : {true, false}) {
      Trainer first(begins_on_device ? on_device(options) : options, world.base(), world.shards());
      std::vector<double> losses = losses_of(first, 3);
      first.save_state(world.path("state"), {});
      Trainer second(on_device(options), world.base(), world.shards());
      second.load_state(world.path("state"), {});
      const auto rest = losses_of(second, 3);
      losses.insert(losses.end(), rest.begin(), rest.end());
      expect_near(losses, expected, begins_on_device ? 1e-3 : 0.02);
    }
  }
}

TEST_F(CudaTrainer, WritesWhatItHasLearned) {
  const World world;
  TrainingOptions options = on_device(testing::language_options());
  Trainer trainer(options, world.base(), world.shards());
  const std::string name = "model.layers.0.mlp.down_proj.weight";
  const auto values = [&] {
    const auto parameters = trainer.parameters();
    const auto now = parameters->view(name).as<float>();
    return std::vector<float>(now.begin(), now.end());
  };
  const std::vector<float> before = values();
  trainer.step();
  EXPECT_NE(values(), before);
  const ExportedModel model = export_model(trainer, DType::f32);
  const auto written = model.tensors.at(name).as<float>();
  EXPECT_TRUE(std::ranges::equal(written, values()));
}

TEST_F(CudaTrainer, NamesTheLayerThatIsNotFinite) {
  const model::ModelSpec spec = testing::tiny_config("llama");
  const World world(spec);
  TensorMap tensors = world.base().tensors();
  const std::string name = "model.layers.1.mlp.down_proj.weight";
  const auto original = tensors.at(name).as<float>();
  std::vector<float> broken(original.begin(), original.end());
  broken[3] = std::numeric_limits<float>::infinity();
  tensors[name].data = reinterpret_cast<const std::byte*>(broken.data());
  model::save_checkpoint(world.path("broken"), spec, tensors);
  const model::Checkpoint base = model::Checkpoint::open(world.path("broken"));
  Trainer trainer(on_device(testing::language_options()), base, world.shards());
  const std::string error = error_of([&] { trainer.step(); });
  EXPECT_NE(error.find("step 1"), std::string::npos) << error;
  EXPECT_NE(error.find("layer 1"), std::string::npos) << error;
  EXPECT_EQ(trainer.steps_done(), 0);
}

TEST_F(CudaTrainer, ComputesInBf16Alone) {
  const World world;
  TrainingOptions options = on_device(testing::language_options());
  options.compute = DType::f32;
  EXPECT_TRUE(error_of([&] { validate(options, world.base().spec()); }).starts_with("--dtype"));
}

}  // namespace
}  // namespace winnow::train
