// MTP layers: what they compute against a plain reference of their ends, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "checkpoint/checkpoint_testing.h"
#include "model/draft_head.h"
#include "model/head_reference.h"
#include "model/model.h"
#include "model/mtp_files.h"
#include "model/tiny_model.h"

namespace winnow::testing {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

// A model and a sequence of it.
class Sequence {
 public:
  explicit Sequence(const model::Model& model) : model_(model) {
    kvcache::CacheConfig config;
    config.format = ops::EntryFormat::f32;
    config.max_bytes = std::size_t{1} << 24;
    cache_.emplace(config, model.cache_shape());
    sequence_.emplace(*cache_, kvcache::SequenceLimits{});
  }

  // The logits of all tokens; `state`: what the last one hands on.
  std::vector<float> take(const Tokens& tokens, model::HeadInput input = {}) {
    model::SequenceStep step{&*sequence_, tokens, tokens.size(), {}};
    step.input = input;
    state.resize(static_cast<std::size_t>(model_.spec().hidden));
    step.state = state;
    ops::Workspace workspace;
    ops::Context context;
    context.compute = DType::f32;
    context.workspace = &workspace;
    const auto vocab = static_cast<std::size_t>(model_.vocab());
    std::vector<float> logits(tokens.size() * vocab);
    model_.forward(context, std::span(&step, 1), {logits.data(), tokens.size(), vocab});
    return logits;
  }

  std::vector<float> state;

 private:
  const model::Model& model_;
  std::optional<kvcache::Cache> cache_;
  std::optional<kvcache::SequenceCache> sequence_;
};

// An MTP layer as it was published: its ends in double, row by row. The layer itself is a model of
// one layer, whose embeddings are the rows that it takes and whose output matrix is the target's.
class MtpReference {
 public:
  MtpReference(const MtpFiles& files, const model::Weights& target)
      : files_(files), target_(target), layer_(make(files, target)), sequence_(layer_) {}

  // The logits for the next token and the stream that goes with it.
  std::vector<float> take(std::int32_t token, const HeadVector& stream) {
    const HeadVector embedded =
        normed_by(row_of(target_.embedding, token), files_.family.names.embedding_norm);
    const HeadVector taken = normed_by(stream, files_.family.names.stream_norm);
    const HeadVector fused =
        times(files_.extra.at(files_.family.names.fusion).values,
              files_.family.stream_first ? joined(taken, embedded) : joined(embedded, taken));
    std::copy(fused.begin(), fused.end(), rows_.begin() + position_ * width());
    std::vector<float> logits = sequence_.take({position_++});
    state = HeadVector(sequence_.state.begin(), sequence_.state.end());
    return logits;
  }

  HeadVector state;

 private:
  [[nodiscard]] std::int32_t width() const { return files_.target.hidden; }

  HeadVector row_of(const ops::Weight& matrix, std::int32_t row) const {
    std::vector<float> values(static_cast<std::size_t>(width()));
    ops::dequantize_row(matrix, row, values.data());
    return {values.begin(), values.end()};
  }

  HeadVector normed_by(const HeadVector& x, const std::string& name) const {
    std::vector<float> weight = files_.extra.at(name).values;
    for (float& value : weight) {
      value += files_.target.final_norm.offset();
    }
    return normed(x, weight);
  }

  model::Model make(const MtpFiles& files, const model::Weights& target) {
    const TempDir directory;
    model::save_checkpoint(directory.path(), files.like, views_of(files.layer));
    model::Weights weights = model::load_weights(model::Checkpoint::open(directory.path()));
    rows_.resize(static_cast<std::size_t>(files.like.vocab * width()));
    weights.embedding = ops::weight_view({DType::f32,
                                          {files.like.vocab, width()},
                                          reinterpret_cast<const std::byte*>(rows_.data())});
    weights.head = target.head;
    if (files.family.names.norm.empty()) {
      weights.norm = target.norm;
    }
    return {files.like, std::move(weights)};
  }

  const MtpFiles& files_;
  const model::Weights& target_;
  std::vector<float> rows_;
  model::Model layer_;
  Sequence sequence_;
  std::int32_t position_ = 0;
};

void expect_near(std::span<const float> actual, std::span<const float> expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(actual[i], expected[i], 1e-4) << i;
  }
}

class MtpLayer : public ::testing::TestWithParam<MtpFamily> {};

INSTANTIATE_TEST_SUITE_P(Families, MtpLayer, ::testing::ValuesIn(mtp_families()),
                         [](const auto& info) { return std::string(info.param.family); });

// The target's states for rows in two chunks, then rows with the layer's own.
TEST_P(MtpLayer, ComputesWhatItsAuthorsSay) {
  const MtpFiles files(GetParam());
  const TempDir directory;
  files.write(directory.path());
  const model::Checkpoint target = model::Checkpoint::open(directory.path());
  const model::Weights weights = model::load_weights(target);
  const model::Checkpoint checkpoint = model::open_mtp_layer(directory.path(), target.spec());
  const model::Model head(checkpoint.spec(), model::load_draft_head(checkpoint, weights));
  EXPECT_EQ(head.spec().draft_head->after, std::vector{2 + (GetParam().normed ? 1 : 0)});
  Sequence sequence(head);
  MtpReference reference(files, weights);
  const auto hidden = static_cast<std::size_t>(head.spec().hidden);
  const auto vocab = static_cast<std::size_t>(head.spec().vocab);
  const Tokens tokens{5, 60, 5, 17, 33, 2, 40};
  std::vector<float> states(tokens.size() * hidden);
  for (std::size_t i = 0; i < states.size(); ++i) {
    states[i] = 3.0F * static_cast<float>(std::sin(static_cast<double>(i * i)));
  }
  std::size_t first = 0;
  for (const std::size_t count : {4, 3}) {
    const Tokens part(tokens.begin() + first, tokens.begin() + first + count);
    const auto logits =
        sequence.take(part, {{states.data() + first * hidden, count, hidden}, /*own=*/false});
    for (std::size_t t = 0; t < count; ++t) {
      const float* from = states.data() + (first + t) * hidden;
      expect_near(std::span(logits).subspan(t * vocab, vocab),
                  reference.take(part[t], HeadVector(from, from + hidden)));
    }
    first += count;
  }
  for (const std::int32_t token : {9, 33, 63}) {
    const std::vector<float> own = sequence.state;
    expect_near(own, std::vector<float>(reference.state.begin(), reference.state.end()));
    expect_near(sequence.take({token}, {{own.data(), 1, hidden}, /*own=*/true}),
                reference.take(token, reference.state));
  }
}

TEST_P(MtpLayer, IsMissingByItsName) {
  MtpFiles files(GetParam());
  const std::vector<std::string> names{GetParam().names.fusion, GetParam().names.embedding_norm,
                                       GetParam().names.stream_norm,
                                       GetParam().names.layer + "post_attention_layernorm.weight",
                                       GetParam().names.layer + "self_attn.o_proj.weight"};
  for (const std::string& name : names) {
    files.missing = {name};
    const TempDir directory;
    files.write(directory.path());
    EXPECT_THAT(error_of([&] { model::open_mtp_layer(directory.path(), files.target); }),
                HasSubstr("model.safetensors: tensor \"" + name + "\" is missing, expected shape"));
  }
}

// The model beside it is as without.
TEST_P(MtpLayer, LeavesTheModelAlone) {
  const MtpFiles files(GetParam());
  const TempDir directory;
  files.write(directory.path());
  const model::Checkpoint target = model::Checkpoint::open(directory.path());
  EXPECT_EQ(target.spec(), files.target);
}

std::string refusal(const model::ModelSpec& spec) {
  const TempDir directory;
  model::save_checkpoint(directory.path(), spec, views_of(random_tensors(spec, 1)));
  return error_of([&] { model::open_mtp_layer(directory.path(), spec); });
}

TEST(MtpLayers, AreRefusedWhereThereAreNone) {
  EXPECT_THAT(refusal(spec_of("llama", {})),
              HasSubstr("models of type \"llama\" have no MTP layers that winnow knows"));
  EXPECT_THAT(refusal(spec_of("qwen3_5_text", {}, hybrid_keys())),
              HasSubstr("the files have no MTP layer: no tensor's name begins with \"mtp.\""));
  EXPECT_THAT(refusal(spec_of("glm4_moe", {}, mtp_family("glm4_moe").keys)),
              HasSubstr("no tensor's name begins with \"model.layers.2.\""));
}

TEST(MtpLayers, OfSeveralTheFirstDrafts) {
  MtpFamily family = mtp_family("glm4_moe");
  family.keys["num_nextn_predict_layers"] = 3;
  const MtpFiles files(family);
  const TempDir directory;
  files.write(directory.path());
  ::testing::internal::CaptureStderr();
  model::open_mtp_layer(directory.path(), files.target);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("num_nextn_predict_layers: of 3 MTP layers the first drafts all tokens"));
}

// Copies of the model's embeddings and output matrix, which some files have, are not read.
TEST(MtpLayers, MayHaveCopiesOfTheModels) {
  MtpFiles files(mtp_family("glm4_moe"));
  for (const char* name : {"embed_tokens.weight", "shared_head.head.weight"}) {
    files.extra[std::string("model.layers.2.") + name] = {{64, 32}, std::vector<float>(64 * 32)};
  }
  const TempDir directory;
  files.write(directory.path());
  const model::Checkpoint head = model::open_mtp_layer(directory.path(), files.target);
  const model::Weights lender = model::random_weights(files.target, DType::f32, 1);
  const model::Weights weights = model::load_draft_head(head, lender);
  EXPECT_EQ(weights.embedding.data, lender.embedding.data);
  EXPECT_EQ(weights.head.data, lender.head.data);
}

// Writes the tensors of a directory once more, changed.
void rewrite(const TempDir& directory, const std::function<void(TensorMap&)>& change) {
  const auto path = directory.path() / "model.safetensors";
  const auto other = directory.path() / "other.safetensors";
  {
    const SafetensorsFile file(path);
    TensorMap tensors(file.tensors().begin(), file.tensors().end());
    change(tensors);
    write_safetensors(other, tensors);
  }
  std::filesystem::rename(other, path);
}

TEST(MtpLayers, MayBeBesideTheTextPartOfAModel) {
  const MtpFiles files(mtp_family("qwen3_5_text"));
  const TempDir directory;
  files.write(directory.path());
  rewrite(directory, [](TensorMap& tensors) {
    TensorMap named;
    for (const auto& [name, tensor] : tensors) {
      const bool own = name.starts_with("model.");
      named[own ? "model.language_model." + name.substr(6) : name] = tensor;
    }
    tensors = named;
  });
  nlohmann::json text = nlohmann::json::parse(directory.read("config.json"));
  text.erase("architectures");
  directory.write("config.json",
                  nlohmann::json({{"architectures", {"Qwen3_5ForConditionalGeneration"}},
                                  {"model_type", "qwen3_5"},
                                  {"text_config", text}})
                      .dump());
  const model::Checkpoint target = model::Checkpoint::open(directory.path());
  const model::Checkpoint head = model::open_mtp_layer(directory.path(), target.spec());
  EXPECT_EQ(head.tensor("fc.weight").shape, (Shape{32, 64}));
}

// Experts of the MTP layer may be stacked, as those of the model.
TEST(MtpLayers, MayHaveStackedExperts) {
  const MtpFiles files(mtp_family("qwen3_5_moe_text"));
  const TempDir directory;
  files.write(directory.path());
  const model::Weights lender = model::random_weights(files.target, DType::f32, 1);
  const auto load = [&] {
    return model::load_draft_head(model::open_mtp_layer(directory.path(), files.target), lender);
  };
  const model::Weights separate = load();
  std::vector<float> gate_up;
  std::vector<float> down;
  rewrite(directory, [&](TensorMap& tensors) {
    const std::string experts = "mtp.layers.0.mlp.experts.";
    const auto append = [&](const std::string& name, std::vector<float>& to) {
      const TensorView tensor = tensors.at(name);
      const auto values = tensor.as<float>();
      to.insert(to.end(), values.begin(), values.end());
      tensors.erase(name);
    };
    for (int e = 0; e < 4; ++e) {
      append(fmt::format("{}{}.gate_proj.weight", experts, e), gate_up);
      append(fmt::format("{}{}.up_proj.weight", experts, e), gate_up);
      append(fmt::format("{}{}.down_proj.weight", experts, e), down);
    }
    tensors[experts + "gate_up_proj"] = {
        DType::f32, {4, 24, 32}, reinterpret_cast<const std::byte*>(gate_up.data())};
    tensors[experts + "down_proj"] = {
        DType::f32, {4, 32, 12}, reinterpret_cast<const std::byte*>(down.data())};
  });
  const model::Weights stacked = load();
  const auto values = [](const ops::Weight& matrix) {
    const auto* data = reinterpret_cast<const float*>(matrix.data);
    return std::vector<float>(data, data + matrix.rows * matrix.cols);
  };
  for (std::size_t e = 0; e < 4; ++e) {
    const model::ExpertWeights& expert = stacked.layers[0].experts[e];
    EXPECT_EQ(values(expert.gate), values(separate.layers[0].experts[e].gate));
    EXPECT_EQ(values(expert.up), values(separate.layers[0].experts[e].up));
    EXPECT_EQ(values(expert.down), values(separate.layers[0].experts[e].down));
  }
}

TEST(MtpLayers, AreQuantisedLikeOthers) {
  const MtpFiles files(mtp_family("qwen3_5_text"), {.hidden = 64, .intermediate = 64});
  const TempDir directory;
  files.write(directory.path());
  const model::Checkpoint head = model::open_mtp_layer(directory.path(), files.target);
  const model::Weights lender = model::random_weights(files.target, DType::f32, 1);
  const model::Weights weights = model::load_draft_head(head, lender, ops::WeightFormat::int8);
  EXPECT_EQ(weights.draft_head.fusion.format, ops::WeightFormat::int8);
  EXPECT_EQ(weights.layers[0].down.format, ops::WeightFormat::int8);
}

}  // namespace
}  // namespace winnow::testing
