#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/checkpoint_testing.h"

namespace winnow::model {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kQuery = "model.layers.1.self_attn.q_proj.weight";
constexpr const char* kAlpha = "model.layers.0.self_attn.dms_proj_alpha";

/// A model directory whose files the tests then damage.
class CheckpointTest : public testing::Test {
 protected:
  std::string open_error() {
    return error_of([&] { Checkpoint::open(dir_.path()); });
  }
  /// Writes `config` (with transformers' usual keys) and `tensors`, unchecked.
  void write(const json& config, const TensorMap& tensors) {
    dir_.write("config.json", config.dump());
    write_safetensors(dir_.path() / "model.safetensors", tensors);
  }
  [[nodiscard]] std::string in_dir(const std::string& name) const {
    return (dir_.path() / name).string();
  }

  TempDir dir_;
};

TEST_F(CheckpointTest, RoundTripsEveryFamilyAndType) {
  for (const char* name :
       {"LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "MistralForCausalLM"}) {
    for (const char* dtype : {"float32", "float16", "bfloat16"}) {
      const ModelSpec config = parse_with({{"torch_dtype", dtype}, {"eos_token_id", 2}}, name);
      OwnedTensors tensors = tensors_of(config);
      save_checkpoint(dir_.path() / "a" / "b", config, tensors.map());
      const Checkpoint opened = Checkpoint::open(dir_.path() / "a" / "b");
      EXPECT_EQ(opened.spec(), config) << name;
      expect_same_tensors(tensors.map(), opened.tensors());
    }
  }
}

TEST_F(CheckpointTest, RoundTripsRetrofits) {
  for (const json& keys : {json{{"dms_separate_alpha", true}}, json{{"dms_cr", 8}},
                           json{{"dms_decision_shift", 0}, {"dms_rezero_after_rope", false}},
                           json{{"dmc_alpha_offset", 5}}}) {
    const ModelSpec config = parse_with(keys, "Qwen3ForCausalLM");
    OwnedTensors tensors = tensors_of(config);
    save_checkpoint(dir_.path(), config, tensors.map());
    EXPECT_EQ(Checkpoint::open(dir_.path()).spec(), config) << keys;
    // The metadata file of the last saved model must be gone.
    EXPECT_EQ(std::filesystem::exists(dir_.path() / "dms_metadata.json"),
              keys.contains("dms_rezero_after_rope"));
  }
}

TEST_F(CheckpointTest, ParameterCount) {
  const ModelSpec config = parse_with({{"tie_word_embeddings", true}});
  OwnedTensors tensors = tensors_of(config);
  write({}, tensors.map());
  dir_.write("config.json", format_spec(config).config);
  // embedding and norm; per layer q, o, k, v, three of the MLP and two norms
  const std::int64_t layer = 2 * 16 * 16 + 2 * 8 * 16 + 3 * 24 * 16 + 2 * 16;
  EXPECT_EQ(Checkpoint::open(dir_.path()).parameter_count(), 32 * 16 + 16 + 2 * layer);
}

TEST_F(CheckpointTest, TiedModelsMayCarryTheHead) {
  json config = tiny_config();
  OwnedTensors tensors = tensors_of(parse(config));
  config["tie_word_embeddings"] = true;
  write(config, tensors.map());
  const Checkpoint opened = Checkpoint::open(dir_.path());
  EXPECT_TRUE(opened.has("lm_head.weight"));
  EXPECT_FALSE(expected_tensors(opened.spec()).contains("lm_head.weight"));
}

TEST_F(CheckpointTest, MissingTensorIsNamed) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  tensors.map().erase(kQuery);
  write(tiny_config(), tensors.map());
  EXPECT_THAT(open_error(), AllOf(StartsWith(in_dir("model.safetensors")), HasSubstr(kQuery),
                                  HasSubstr("is missing, expected shape [16, 16]")));
  EXPECT_THAT(error_of([&] { save_checkpoint(dir_.path(), parse(tiny_config()), tensors.map()); }),
              HasSubstr(kQuery));
  tensors = tensors_of(parse(tiny_config()));
  tensors.map().erase("lm_head.weight");
  write(tiny_config(), tensors.map());
  EXPECT_THAT(open_error(), HasSubstr("or tie_word_embeddings: true"));
}

TEST_F(CheckpointTest, WrongShapeAndTypeAreNamed) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  tensors.add(kQuery, DType::bf16, {16, 15});
  write(tiny_config(), tensors.map());
  EXPECT_THAT(open_error(), AllOf(StartsWith(in_dir("model.safetensors")), HasSubstr(kQuery),
                                  HasSubstr("has shape [16, 15], expected [16, 16]")));
  tensors.add(kQuery, DType::i32, {16, 16});
  write(tiny_config(), tensors.map());
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr(kQuery), HasSubstr("has type int32, expected fp32, fp16 or bf16")));
}

TEST_F(CheckpointTest, UnusableTypeIsNamed) {
  dir_.write("config.json", tiny_config().dump());
  dir_.write("model.safetensors",
             image_of(R"({"model.norm.weight":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})",
                      "12345678"));
  EXPECT_THAT(open_error(), HasSubstr("tensor \"model.norm.weight\" has type U64"));
}

TEST_F(CheckpointTest, ParametersThatWouldBeIgnoredAreRejected) {
  OwnedTensors tensors = tensors_of(parse(tiny_config("Qwen2ForCausalLM")));
  write(tiny_config("LlamaForCausalLM"), tensors.map());
  EXPECT_THAT(open_error(), HasSubstr("\"model.layers.0.self_attn.k_proj.bias\" does not belong"));

  json config = tiny_config("Qwen3ForCausalLM");
  config["dms_separate_alpha"] = true;
  OwnedTensors adapter = tensors_of(parse(config));
  config["dms_separate_alpha"] = false;
  write(config, adapter.map());
  EXPECT_THAT(open_error(), HasSubstr("expected dms_separate_alpha: true"));
}

TEST_F(CheckpointTest, LaterLayersAreNamedAndNotUsed) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  json config = tiny_config();
  config["num_hidden_layers"] = 1;
  write(config, tensors.map());
  testing::internal::CaptureStderr();
  EXPECT_EQ(open_error(), "no error");
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              HasSubstr("model.safetensors: 1 layers run, as config.json says; tensors of later"));
}

// A bias of zeros: some converters write one for every projection.
TEST_F(CheckpointTest, ABiasOfZerosIsNone) {
  constexpr const char* kBias = "model.layers.1.self_attn.o_proj.bias";
  for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
    OwnedTensors tensors = tensors_of(parse(tiny_config()));
    std::string zeros(16 * dtype_size(type), '\0');
    zeros[2 * dtype_size(type) - 1] = '\x80';  // -0.0
    tensors.map()[kBias] = {type, {16}, reinterpret_cast<const std::byte*>(zeros.data())};
    write(tiny_config(), tensors.map());
    EXPECT_EQ(open_error(), "no error");
    zeros[0] = 1;
    write(tiny_config(), tensors.map());
    EXPECT_THAT(open_error(), HasSubstr("o_proj.bias\" does not belong"));
  }
}

// Saved from transformers' base model, whose tensor names lack "model.".
TEST_F(CheckpointTest, NamesWithoutPrefix) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  TensorMap stored;
  for (const auto& [name, tensor] : tensors.map()) {
    stored[name.starts_with("model.") ? name.substr(6) : name] = tensor;
  }
  write(tiny_config(), stored);
  expect_same_tensors(tensors.map(), Checkpoint::open(dir_.path()).tensors());

  stored.erase("norm.weight");
  write(tiny_config(), stored);
  EXPECT_THAT(open_error(), HasSubstr("tensor \"model.norm.weight\" is missing"));

  // If some names have the prefix, those without it do not count.
  stored = tensors.map();
  stored["norm.weight"] = stored.extract("model.norm.weight").mapped();
  write(tiny_config(), stored);
  EXPECT_THAT(open_error(), HasSubstr("tensor \"model.norm.weight\" is missing"));
}

// One matrix in fp8 with a scale; the others are plain.
TEST_F(CheckpointTest, QuantisedMatricesAreConvertedWhenTheyAreAskedFor) {
  json config = tiny_config();
  OwnedTensors tensors = tensors_of(parse(config));
  TensorMap expected = tensors.map();
  tensors.add(kQuery, DType::f8e4m3, {16, 16}, 3);
  std::vector<bf16> values;
  for (const f8e4m3 code : tensors.map()[kQuery].as<f8e4m3>()) {
    values.push_back(to_bf16(to_float(code) * 0.25F));
  }
  expected[kQuery].data = reinterpret_cast<const std::byte*>(values.data());
  const bf16 scale = to_bf16(0.25F);
  const std::string scale_name = std::string(kQuery) + "_scale_inv";
  tensors.map()[scale_name] = {DType::bf16, {1}, reinterpret_cast<const std::byte*>(&scale)};
  expected[scale_name] = tensors.map()[scale_name];

  write(config, tensors.map());
  EXPECT_THAT(open_error(), HasSubstr("has type fp8"));
  config["quantization_config"] = {{"quant_method", "fp8"}};
  write(config, tensors.map());
  const Checkpoint opened = Checkpoint::open(dir_.path());
  EXPECT_TRUE(opened.is_converted(kQuery));
  EXPECT_FALSE(opened.is_converted("model.norm.weight"));
  EXPECT_EQ(opened.parameter_count(), Checkpoint(opened).parameter_count());
  const StoredSizes sizes = opened.sizes();
  const std::map<std::string, std::size_t> quantised{{"fp8", 16 * 16 + sizeof(bf16)}};
  EXPECT_EQ(sizes.quantized.types, quantised) << "codes and a scale";
  EXPECT_EQ(sizes.held, 16 * 16 * sizeof(bf16)) << "as bf16, and not in the file's pages";
  EXPECT_GT(sizes.mapped, 0U) << "all others";
  EXPECT_EQ(sizes.types.at("BF16"), sizes.mapped);
  EXPECT_EQ(sizes.types.at("fp8"), quantised.at("fp8"));
  testing::internal::CaptureStderr();
  expect_same_tensors(expected, opened.tensors());
  expect_same_tensors(expected, Checkpoint(opened).tensors());
  const std::string note = testing::internal::GetCapturedStderr();
  EXPECT_THAT(note, HasSubstr("converts 1 matrices that fp8 quantised to bf16: "));
  EXPECT_THAT(note, HasSubstr("runs with --weights int8 or int4 keep them small"));
  EXPECT_EQ(std::count(note.begin(), note.end(), '\n'), 1) << "converted once: " << note;

  save_checkpoint(dir_.path(), opened.spec(), expected);
  EXPECT_FALSE(Checkpoint::open(dir_.path()).is_converted(kQuery));

  config["quantization_config"] = {{"quant_method", "hqq"}};
  dir_.write("config.json", config.dump());
  EXPECT_THAT(open_error(), StartsWith(in_dir("config.json") +
                                       ": quantization_config: quant_method \"hqq\" is not"));
}

// Older files describe the quantisation in another file, or in none.
TEST_F(CheckpointTest, QuantisationThatAnotherFileTellsOf) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  tensors.map().erase(kQuery);
  const std::string module = std::string(kQuery).substr(0, std::strlen(kQuery) - 6);
  const std::string zeros(512, '\0');
  const std::vector<f16> scales(16, to_f16(0.25F));
  const auto* none = reinterpret_cast<const std::byte*>(zeros.data());
  tensors.map()[module + "qweight"] = {DType::i32, {2, 16}, none};
  tensors.map()[module + "qzeros"] = {DType::i32, {1, 2}, none};
  tensors.map()[module + "scales"] = {
      DType::f16, {1, 16}, reinterpret_cast<const std::byte*>(scales.data())};
  write(tiny_config(), tensors.map());
  EXPECT_THAT(open_error(), HasSubstr("q_proj.weight\" is missing"));

  dir_.write("quantize_config.json", R"({"bits": 4, "group_size": 16, "desc_act": false})");
  const Checkpoint gptq = Checkpoint::open(dir_.path());
  EXPECT_EQ(to_float(gptq.tensor(kQuery).as<bf16>()[0]), -0.25F) << "a zero of 1";

  std::filesystem::remove(dir_.path() / "quantize_config.json");
  dir_.write("quant_config.json", R"({"w_bit": 4, "q_group_size": 16, "version": "GEMM"})");
  tensors.map()[module + "qweight"].shape = {16, 2};
  write(tiny_config(), tensors.map());
  const Checkpoint awq = Checkpoint::open(dir_.path());
  EXPECT_EQ(to_float(awq.tensor(kQuery).as<bf16>()[0]), 0.0F);
}

TEST_F(CheckpointTest, HarmlessExtrasAreAllowed) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  tensors.add("model.layers.0.self_attn.rotary_emb.inv_freq", DType::f32, {2});
  tensors.add("model.layers.9.input_layernorm.weight", DType::f32, {16});
  tensors.add("something.else", DType::i64, {1});
  write(tiny_config(), tensors.map());
  EXPECT_EQ(open_error(), "no error");
}

TEST_F(CheckpointTest, AdapterTensors) {
  json config = tiny_config();
  config["dms_separate_alpha"] = true;
  config["dms_alpha_per"] = "layer";
  OwnedTensors tensors = tensors_of(parse(config));
  const std::string weight = std::string(kAlpha) + ".weight";
  const std::string bias = std::string(kAlpha) + ".bias";
  EXPECT_EQ(tensors.map().at(weight).shape, (Shape{2, 16}));
  EXPECT_EQ(tensors.map().at(std::string(kAlpha) + "_norm.weight").shape, Shape{16});
  write(config, tensors.map());
  EXPECT_FALSE(Checkpoint::open(dir_.path()).has(bias));
  tensors.add(bias, DType::bf16, {2});
  write(config, tensors.map());
  EXPECT_TRUE(Checkpoint::open(dir_.path()).has(bias));
  tensors.add(bias, DType::bf16, {3});
  write(config, tensors.map());
  EXPECT_THAT(open_error(), AllOf(HasSubstr(bias), HasSubstr("shape [3], expected [2]")));
}

TEST_F(CheckpointTest, MissingFilesAreNamed) {
  EXPECT_EQ(error_of([] { Checkpoint::open("nowhere"); }), "nowhere: no such file or directory");
  EXPECT_EQ(open_error(), dir_.path().string() + ": no model: it has no config.json");
  dir_.write("README.md", "words");
  const std::string text = in_dir("README.md");
  EXPECT_EQ(error_of([&] { Checkpoint::open(text); }),
            text + ": neither a directory nor a GGUF file");
  dir_.write("x.gguf", "words");
  const std::string damaged = in_dir("x.gguf");
  EXPECT_THAT(error_of([&] { Checkpoint::open(damaged); }),
              StartsWith(damaged + ": damaged, or not GGUF"));
  dir_.write("config.json", tiny_config().dump());
  EXPECT_THAT(open_error(),
              HasSubstr("neither model.safetensors nor model.safetensors.index.json"));
  dir_.write("pytorch_model.bin", "PK");
  EXPECT_THAT(open_error(), HasSubstr("pytorch_model.bin is: save the model again"));
  dir_.write("config.json", "version https://git-lfs.github.com/spec/v1\n");
  EXPECT_THAT(open_error(), StartsWith(in_dir("config.json") + ": a Git LFS pointer"));
}

TEST_F(CheckpointTest, ATensorThatIsNotThereIsAnError) {
  OwnedTensors tensors = tensors_of(parse(tiny_config()));
  write(tiny_config(), tensors.map());
  const Checkpoint opened = Checkpoint::open(dir_.path());
  EXPECT_EQ(opened.tensor(kQuery).shape, (Shape{16, 16}));
  EXPECT_THAT(error_of([&] { (void)opened.tensor("x"); }),
              AllOf(HasSubstr(dir_.path().string()), HasSubstr("tensor \"x\" is missing")));
}

/// A directory of two shards, with an index that the tests damage.
class ShardTest : public CheckpointTest {
 protected:
  void SetUp() override {
    dir_.write("config.json", tiny_config().dump());
    TensorMap parts[2];
    for (const auto& [name, tensor] : tensors_.map()) {
      const int part = static_cast<int>(map_.size() % 2);
      parts[part][name] = tensor;
      map_[name] = shard(part);
    }
    for (int part = 0; part < 2; ++part) {
      write_safetensors(dir_.path() / shard(part), parts[part]);
    }
    write_index();
  }
  void write_index() {
    dir_.write("model.safetensors.index.json", json{{"weight_map", map_}}.dump());
  }
  static std::string shard(int part) {
    return fmt::format("model-0000{}-of-00002.safetensors", part + 1);
  }

  OwnedTensors tensors_ = tensors_of(parse(tiny_config()));
  json map_ = json::object();
};

TEST_F(ShardTest, Opens) {
  expect_same_tensors(tensors_.map(), Checkpoint::open(dir_.path()).tensors());
}

TEST_F(ShardTest, MissingShardIsNamed) {
  std::filesystem::remove(dir_.path() / shard(1));
  EXPECT_THAT(open_error(),
              AllOf(HasSubstr(dir_.path().string()), HasSubstr(shard(1)), HasSubstr("is missing")));
}

// As in transformers, the index names the shards, but need not list their tensors correctly.
TEST_F(ShardTest, EveryTensorOfEveryShardCounts) {
  const std::string name = "model.norm.weight";
  const json right = map_[name];
  map_[name] = right == shard(0) ? shard(1) : shard(0);  // the wrong shard
  write_index();
  EXPECT_EQ(open_error(), "no error");
  map_.erase(name);
  write_index();
  expect_same_tensors(tensors_.map(), Checkpoint::open(dir_.path()).tensors());
  map_["model.something.else"] = right;  // in no shard
  write_index();
  expect_same_tensors(tensors_.map(), Checkpoint::open(dir_.path()).tensors());
}

TEST_F(ShardTest, OfTwoTensorsOfOneNameTheIndexTellsWhich) {
  const std::string name = "model.norm.weight";
  for (const char* file : {"a.safetensors", "z.safetensors"}) {
    OwnedTensors other;
    other.add(name, DType::bf16, {16}, 5);
    write_safetensors(dir_.path() / file, other.map());
    json map = map_;
    map["one.more"] = file;
    dir_.write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    expect_same_tensors(tensors_.map(), Checkpoint::open(dir_.path()).tensors());
    map[name] = file;
    dir_.write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    const Checkpoint opened = Checkpoint::open(dir_.path());
    EXPECT_EQ(
        std::memcmp(opened.tensor(name).data, other.map()[name].data, other.map()[name].bytes()),
        0);
  }
}

TEST_F(ShardTest, ATensorThatNoShardHoldsIsNamed) {
  TensorMap without = tensors_.map();
  without.erase("model.norm.weight");
  write_safetensors(dir_.path() / shard(0), without);
  write_safetensors(dir_.path() / shard(1), TensorMap{});
  EXPECT_THAT(open_error(),
              StartsWith(dir_.path().string() + ": tensor \"model.norm.weight\" is missing"));
}

TEST_F(ShardTest, WrongTypeNamesTheShard) {
  OwnedTensors wrong;
  wrong.add("model.norm.weight", DType::i8, {16});
  write_safetensors(dir_.path() / "extra.safetensors", wrong.map());
  map_["model.norm.weight"] = "extra.safetensors";
  write_index();
  EXPECT_THAT(open_error(), AllOf(HasSubstr("\"model.norm.weight\" has type int8")));
}

TEST_F(ShardTest, UnusableTypesMatterWhereTheModelNeedsThem) {
  dir_.write("extra.safetensors",
             image_of(R"({"mask":{"dtype":"BOOL","shape":[8],"data_offsets":[0,8]}})", "12345678"));
  map_["mask"] = "extra.safetensors";
  write_index();
  EXPECT_EQ(open_error(), "no error");

  dir_.write("extra.safetensors",
             image_of(R"({"model.norm.weight":{"dtype":"U64","shape":[1],"data_offsets":[0,8]}})",
                      "12345678"));
  map_.erase("mask");
  map_["model.norm.weight"] = "extra.safetensors";
  write_index();
  EXPECT_THAT(open_error(), HasSubstr("tensor \"model.norm.weight\" has type U64"));
}

TEST_F(ShardTest, ShardsMustBeFilesOfTheDirectory) {
  for (const char* bad : {"../w.safetensors", "a/b", "/etc/passwd", "..", ".", "", "a\\b"}) {
    map_["model.norm.weight"] = bad;
    write_index();
    EXPECT_THAT(open_error(),
                AllOf(StartsWith(in_dir("model.safetensors.index.json")),
                      HasSubstr("model.norm.weight"), HasSubstr("not the name of a file")))
        << bad;
  }
  map_["model.norm.weight"] = 3;
  write_index();
  EXPECT_THAT(open_error(), HasSubstr("expected a file name, got 3"));
}

TEST_F(ShardTest, BrokenIndexIsNamed) {
  dir_.write("model.safetensors.index.json", "{");
  EXPECT_THAT(open_error(), StartsWith(in_dir("model.safetensors.index.json")));
  dir_.write("model.safetensors.index.json", "{}");
  EXPECT_THAT(open_error(), HasSubstr("weight_map: expected an object, got nothing"));
}

TEST_F(ShardTest, SavingOverShardsLeavesOneModel) {
  const ModelSpec config = parse(tiny_config());
  OwnedTensors other = tensors_of(config, 7);
  save_checkpoint(dir_.path(), config, other.map());
  expect_same_tensors(other.map(), Checkpoint::open(dir_.path()).tensors());
  EXPECT_FALSE(std::filesystem::exists(dir_.path() / "model.safetensors.index.json"));
}

TEST(Fixtures, EveryModelOpensAndSurvivesSaving) {
  const std::filesystem::path models = WINNOW_SOURCE_DIR "/tests/fixtures/models";
  ASSERT_TRUE(std::filesystem::is_directory(models));
  TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    SCOPED_TRACE(entry.path().filename().string());
    const Checkpoint original = Checkpoint::open(entry.path());
    EXPECT_GT(original.parameter_count(), 0);
    EXPECT_EQ(entry.path().filename().string().starts_with("dms-"),
              original.spec().dms.has_value());
    EXPECT_EQ(entry.path().filename().string().starts_with("dmc-"),
              original.spec().dmc.has_value());
    save_checkpoint(dir.path(), original.spec(), original.tensors());
    const Checkpoint saved = Checkpoint::open(dir.path());
    EXPECT_EQ(saved.spec(), original.spec());
    expect_same_tensors(original.tensors(), saved.tensors());
    // Files saved by transformers store experts in its own layout. Only the text part of a whole
    // model is saved.
    const bool whole = entry.path().filename().string().ends_with("-whole");
    const auto file = entry.path() / "model.safetensors";
    if (!whole && std::filesystem::exists(file)) {
      expect_same_tensors(SafetensorsFile(file).tensors(),
                          SafetensorsFile(dir.path() / "model.safetensors").tensors());
    }
  }
}

}  // namespace
}  // namespace winnow::model
