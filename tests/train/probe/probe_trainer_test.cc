// Training a probe: an interrupted training goes on, and learns the same.
#include "train/probe/probe_trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "checkpoint/checkpoint_testing.h"

namespace winnow::train {
namespace {

using ::testing::HasSubstr;

const std::string kPlainModel = std::string(WINNOW_SOURCE_DIR) + "/assets/base";

class ProbeTraining : public ::testing::Test {
 protected:
  ProbeTraining() : model_(engine::load_model({.model = kPlainModel, .cache = "dense"})) {
    Random random(3);
    for (int i = 0; i < 6 * 24; ++i) {
      tokens_.push_back(static_cast<std::int32_t>(random.uniform() * model_->spec().vocab));
    }
    for (std::size_t i = 0; i < 6; ++i) {
      pieces_.push_back(std::span(tokens_).subspan(24 * i, 24));
    }
  }

  TrainedProbe train(const ProbeSumsFile* kept, const std::function<void(std::int64_t)>& on_piece) {
    return train_probe(*model_, Repeater(kPlainModel, model_->spec()), pieces_,
                       {.on_piece = on_piece, .kept = kept});
  }

  TempDir directory_;
  std::filesystem::path file_ = directory_.path() / "training" / "sums";
  std::unique_ptr<const engine::LoadedModel> model_;
  std::vector<std::int32_t> tokens_;
  std::vector<std::span<const std::int32_t>> pieces_;
};

TEST_F(ProbeTraining, GoesOnAndLearnsTheSame) {
  const TrainedProbe whole = train(nullptr, {});
  const ProbeSumsFile kept(file_, {{"length", 24}});
  const auto stop_at = [](std::int64_t last) {
    return [last](std::int64_t done) {
      if (done == last) {
        throw std::runtime_error("stop");
      }
    };
  };
  EXPECT_THROW(train(&kept, stop_at(2)), std::runtime_error);  // makes the folder
  EXPECT_THROW(train(&kept, stop_at(6)), std::runtime_error);  // while it measures
  std::vector<std::int64_t> told;
  const TrainedProbe rest = train(&kept, [&](std::int64_t done) { told.push_back(done); });
  EXPECT_EQ(told, (std::vector<std::int64_t>{5, 6}));
  ASSERT_EQ(rest.layers.size(), whole.layers.size());
  for (std::size_t i = 0; i < whole.layers.size(); ++i) {
    EXPECT_EQ(rest.layers[i].weight, whole.layers[i].weight) << i;
    EXPECT_EQ(rest.layers[i].bias, whole.layers[i].bias) << i;
  }
  EXPECT_EQ(rest.fit.predicted, whole.fit.predicted);
}

TEST_F(ProbeTraining, RefusesSumsThatAreNotItsOwn) {
  const ProbeSumsFile kept(file_, {{"length", 24}});
  ProbeSumsShape shape{.most_pieces = 4, .layers = {0}, .inputs = 3, .outputs = 2};
  EXPECT_EQ(kept.read(shape).pieces, 0);
  ProbeSums sums{.pieces = 3, .layers = {}};
  sums.layers.try_emplace(0, std::size_t{3}, std::size_t{2});
  kept.write(sums);
  EXPECT_EQ(kept.read(shape).pieces, 3);
  const auto error = [&](const ProbeSumsFile& file) -> std::string {
    try {
      static_cast<void>(file.read(shape));
    } catch (const Error& thrown) {
      return thrown.what();
    }
    return "";
  };
  shape.most_pieces = 2;
  EXPECT_THAT(error(kept), HasSubstr("pieces"));
  shape.most_pieces = 4;
  shape.inputs = 4;
  EXPECT_THAT(error(kept), HasSubstr("damaged"));
  shape.inputs = 3;
  EXPECT_THAT(error(ProbeSumsFile(file_, {{"length", 25}})),
              HasSubstr("of a training with another length (24, now 25): remove it"));
  std::filesystem::resize_file(file_, std::filesystem::file_size(file_) - 8);
  EXPECT_THAT(error(kept), HasSubstr("damaged"));
  for (const char* text : {"text\n", "[]\n", "{}\n", ""}) {
    std::ofstream(file_) << text;
    EXPECT_THAT(error(kept), HasSubstr("sums")) << text;
  }
  kept.remove();
  EXPECT_EQ(error(kept), "");
}

}  // namespace
}  // namespace winnow::train
