// Compression probes against a reference that follows their publications.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/sha256.h"
#include "checkpoint/json.h"
#include "model/checkpoint_testing.h"
#include "model/fixture.h"

namespace winnow::model {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using winnow::testing::Expected;
using winnow::testing::Outcome;
using winnow::testing::Runner;

constexpr float kProbeTolerance = 1e-3F;
namespace fs = std::filesystem;

fs::path probes() {
  return fs::path(WINNOW_SOURCE_DIR) / "tests/fixtures/probes";
}

nlohmann::json read(const fs::path& file) {
  return nlohmann::json::parse(std::ifstream(file));
}

/// A fixture, its model, and how it is opened.
struct ProbeCase {
  explicit ProbeCase(const std::string& name) : directory(probes() / name) {
    const nlohmann::json json = read(directory / "case.json");
    model = winnow::testing::fixture_models() / json.at("model").get<std::string>();
    window = json.at("window");
    if (json.contains("threshold")) {
      threshold = json["threshold"].get<double>();
    }
  }
  [[nodiscard]] Checkpoint open() const {
    return Checkpoint::open(model, {}, ProbeOptions{directory, threshold});
  }
  fs::path directory;
  fs::path model;
  int window = 0;
  std::optional<double> threshold;
};

class ProbeFixture : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Probes, ProbeFixture,
                         ::testing::Values("kvzap-linear", "kvzap-linear-olmo2", "kvzap-mlp",
                                           "kvzap-mlp-gemma2", "fast-kvzip", "sidecar",
                                           "sidecar-qwen3.5"));

TEST_P(ProbeFixture, DecidesAsTheReference) {
  const ProbeCase probe(GetParam());
  const Expected expected(probe.directory / "expected.safetensors");
  const Checkpoint checkpoint = probe.open();
  const Model model(checkpoint.spec(), load_weights(checkpoint));
  kvcache::CacheConfig config = winnow::testing::trained_cache(checkpoint.spec());
  config.window = probe.window;
  kvcache::Cache cache(config, model.cache_shape());
  for (const bool deterministic : {false, true}) {
    for (const std::size_t chunk : {80, 1, 7}) {
      SCOPED_TRACE(chunk);
      Outcome outcome;
      Runner(model, cache, {}, deterministic).feed_in_chunks(expected.tokens(), chunk, outcome);
      EXPECT_LE(winnow::testing::largest_difference(expected.logits(), outcome.logits),
                kProbeTolerance);
      EXPECT_TRUE(std::ranges::equal(expected.live_entries(), outcome.live_entries));
    }
  }
}

TEST(Probe, TakesWindowAndThresholdOfItsFormat) {
  const ProbeCase kvzap("kvzap-mlp");
  const DmsConfig standard =
      *Checkpoint::open(kvzap.model, {}, ProbeOptions{kvzap.directory}).spec().dms;
  EXPECT_EQ(standard.window, 128);
  EXPECT_EQ(standard.shift, 0);
  EXPECT_EQ(standard.offset / standard.scale, -4.0F);

  const TempDir own;
  fs::copy(kvzap.directory, own.path(), fs::copy_options::recursive);
  nlohmann::json config = read(own.path() / "config.json");
  config["threshold"] = -2.5;
  std::ofstream(own.path() / "config.json") << config;
  EXPECT_EQ(Checkpoint::open(kvzap.model, {}, ProbeOptions{own.path()}).spec().dms->offset, 2.5F);
  EXPECT_EQ(Checkpoint::open(kvzap.model, {}, ProbeOptions{own.path(), -1.0}).spec().dms->offset,
            1.0F);

  const DmsConfig sidecar = *ProbeCase("sidecar").open().spec().dms;
  const nlohmann::json metadata = read(probes() / "sidecar/dms_metadata.json");
  EXPECT_EQ(sidecar.window, metadata["window_size"]);
  EXPECT_EQ(sidecar.scale, metadata["alpha_scale"].get<float>());
  EXPECT_EQ(sidecar.offset, metadata["alpha_offset"].get<float>());
  EXPECT_EQ(sidecar.target_cr, 2.0);
  EXPECT_EQ(ProbeCase("fast-kvzip").open().spec().dms->keeps_first, 4);
}

// --- errors -----------------------------------------------------------------------------------

/// A copy of a fixture, for tests to change.
class ChangedProbe : public ::testing::Test {
 protected:
  void copy(const std::string& name) {
    original_ = ProbeCase(name);
    for (const auto& entry : fs::directory_iterator(original_->directory)) {
      fs::copy(entry.path(), dir_.path(), fs::copy_options::overwrite_existing);
    }
  }
  void change(const std::string& file, const nlohmann::json& patch) {
    nlohmann::json json = read(dir_.path() / file);
    json.merge_patch(patch);
    dir_.write(file, json.dump());
  }
  std::string error(const fs::path& model, std::optional<double> threshold = {}) {
    return error_of([&] {
      (void)Checkpoint::open(model, {}, ProbeOptions{dir_.path(), threshold});
    });
  }
  std::string error() { return error(original_->model, original_->threshold); }

  TempDir dir_;
  std::optional<ProbeCase> original_;
};

TEST_F(ChangedProbe, BehindALayerNormIsRefused) {
  copy("kvzap-mlp");
  EXPECT_THAT(error(fs::path(WINNOW_SOURCE_DIR) / "tests/fixtures/models/gpt-neox"),
              HasSubstr("probes read an RMSNorm, and layers of the model have a LayerNorm"));
}

TEST_F(ChangedProbe, OfAnotherModelIsRefused) {
  copy("kvzap-mlp");
  EXPECT_EQ(error(), "no error");
  change("config.json", {{"input_dim", 99}});
  EXPECT_THAT(error(), HasSubstr("input_dim is 99, but the model has"));
  change("config.json", {{"input_dim", read(original_->directory / "config.json")["input_dim"]},
                         {"n_modules", 7}});
  EXPECT_THAT(error(), HasSubstr("n_modules is 7, but the model has 2 layers"));
  copy("kvzap-mlp");
  change("config.json", {{"hidden_dim", 25}});
  EXPECT_THAT(error(), AllOf(HasSubstr("layers.0.0.weight"), HasSubstr("has shape [24, ")));
  change("config.json", {{"hidden_dim", nullptr}});
  EXPECT_THAT(error(), HasSubstr("layers.0.weight"));
}

TEST_F(ChangedProbe, GoesWithPlainModels) {
  copy("kvzap-linear");
  EXPECT_THAT(error(winnow::testing::fixture_models() / "dms-qwen3-borrowed"),
              HasSubstr("the model decides by itself"));
}

TEST_F(ChangedProbe, OfNoKnownFormatIsRefused) {
  copy("kvzap-linear");
  change("config.json", {{"model_type", "llama"}});
  EXPECT_THAT(error(), HasSubstr("no probe: model_type is \"llama\", expected \"kvzap\""));
  fs::remove(dir_.path() / "config.json");
  EXPECT_THAT(error(), HasSubstr("tensor \"layers.0.k_base\" is missing"));
  fs::remove(dir_.path() / "model.safetensors");
  EXPECT_THAT(error(), HasSubstr("no probe; expected dms_metadata.json"));
}

TEST_F(ChangedProbe, GatesNeedAThreshold) {
  copy("fast-kvzip");
  EXPECT_THAT(error(original_->model), HasSubstr("--probe-threshold is needed"));
}

TEST_F(ChangedProbe, SidecarIsWhatItsMetadataSays) {
  copy("sidecar");
  EXPECT_EQ(error(), "no error");
  EXPECT_THAT(error(original_->model, 0.5), HasSubstr("has a threshold of its own"));
  for (const auto& [patch, message] : std::initializer_list<std::pair<nlohmann::json, const char*>>{
           {{{"schema_version", 3}}, "schema_version 3 is no probe"},
           {{{"physical_layer_ids", {1}}},
            "physical_layer_ids is [1], but the model compresses in"},
           {{{"num_kv_heads", 9}}, "num_kv_heads is 9, but the model has"},
           {{{"input_stage", "pre_norm"}}, "input_stage is \"pre_norm\""},
           {{{"decision_source", "mlp"}}, "decision_source is \"mlp\""},
           {{{"sidecar", {{"sha256", "00"}}}}, "its SHA-256 is "},
           {{{"sidecar", {{"path", "../x"}}}}, "expected a file of the same directory"},
           {{{"sidecar", {{"format", "gguf"}}}}, "format is \"gguf\""}}) {
    copy("sidecar");
    change("dms_metadata.json", patch);
    EXPECT_THAT(error(), HasSubstr(message));
  }
}

TEST_F(ChangedProbe, SidecarKnowsTheFileOfItsModel) {
  copy("sidecar");
  // The check needs only the description of the model, not its weights.
  const fs::path model = original_->model / "model.safetensors";
  const ModelSpec spec = read_spec(original_->model);
  const auto open = [&] { (void)open_probe(ProbeOptions{dir_.path()}, spec, model); };
  EXPECT_THAT(error_of(open), HasSubstr("artifact_fingerprint: the probe is for the file"));
  const MappedFile file(model);
  Sha256 hash;
  hash.update(file.bytes());
  change("dms_metadata.json", {{"artifact_fingerprint", hash.finish()}});
  EXPECT_EQ(error_of(open), "no error");
}

}  // namespace
}  // namespace winnow::model
