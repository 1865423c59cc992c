// Heads of EAGLE-3: their logits against a plain reference, and what is refused.
#include "model/draft_head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/checkpoint_testing.h"
#include "model/head_reference.h"
#include "model/model.h"
#include "model/tiny_model.h"

namespace winnow::testing {
namespace {

using ::testing::HasSubstr;
using Tokens = std::vector<std::int32_t>;

model::ModelSpec target_spec(const Sizes& sizes = {}) {
  return tiny_model(kvcache::RuleKind::dense, sizes);
}

// A head that has been loaded, and a sequence of it.
class Loaded {
 public:
  explicit Loaded(const HeadFiles& files) {
    files.write(directory_.path());
    const model::ModelSpec target = target_spec();
    const model::Checkpoint checkpoint = model::open_draft_head(directory_.path(), target);
    head_.emplace(checkpoint.spec(), model::load_draft_head(checkpoint, lender_));
    kvcache::CacheConfig config;
    config.format = ops::EntryFormat::f32;
    config.max_bytes = std::size_t{1} << 24;
    cache_.emplace(config, head_->cache_shape());
    sequence_.emplace(*cache_, kvcache::SequenceLimits{});
  }

  // Takes rows; `states` is what the next row takes in the target's place.
  std::vector<float> take(const Tokens& tokens, const std::vector<float>& inputs, bool own) {
    const std::size_t width = inputs.size() / tokens.size();
    model::SequenceStep step{&*sequence_, tokens, tokens.size(), {}};
    step.input = {{inputs.data(), tokens.size(), width}, own};
    state.resize(static_cast<std::size_t>(head_->spec().hidden));
    step.state = state;
    ops::Workspace workspace;
    ops::Context context;
    context.compute = DType::f32;
    context.workspace = &workspace;
    const auto vocab = static_cast<std::size_t>(head_->vocab());
    std::vector<float> logits(tokens.size() * vocab);
    head_->forward(context, std::span(&step, 1), {logits.data(), tokens.size(), vocab});
    return logits;
  }

  std::vector<float> state;

 private:
  TempDir directory_;
  model::Weights lender_ = model::random_weights(target_spec(), DType::f32, 1);
  std::optional<model::Model> head_;
  std::optional<kvcache::Cache> cache_;
  std::optional<kvcache::SequenceCache> sequence_;
};

std::vector<float> any_states(std::size_t count) {
  std::vector<float> states(count);
  for (std::size_t i = 0; i < count; ++i) {
    states[i] = static_cast<float>(std::sin(static_cast<double>(i * i)));
  }
  return states;
}

void expect_near(const HeadVector& expected, std::span<const float> actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (std::isinf(expected[i])) {
      EXPECT_EQ(actual[i], expected[i]) << i;
    } else {
      EXPECT_NEAR(actual[i], expected[i], 1e-4) << i;
    }
  }
}

// The target's states for rows in two chunks, then three rows with the head's own.
void expect_reference_logits(const HeadFiles& files, HeadReference reference,
                             bool norms_output = false) {
  Loaded loaded(files);
  const auto inputs = static_cast<std::size_t>(files.tensors.at("fc.weight").shape[1]);
  const auto vocab = static_cast<std::size_t>(files.sizes.vocab);
  const Tokens tokens{5, 60, 5, 17, 33, 2};
  const std::vector<float> states = any_states(tokens.size() * inputs);
  const auto next_of = [&](const HeadVector& stream) {
    return norms_output ? normed(stream, files.at("norm.weight")) : stream;
  };
  HeadVector stream;
  std::size_t first = 0;
  for (const std::size_t count : {4UL, 2UL}) {
    const Tokens part(tokens.begin() + first, tokens.begin() + first + count);
    const auto logits = loaded.take(
        part, {states.begin() + first * inputs, states.begin() + (first + count) * inputs}, false);
    for (std::size_t t = 0; t < count; ++t) {
      const auto from = states.begin() + (first + t) * inputs;
      stream = reference.take(part[t], reference.fused(HeadVector(from, from + inputs)));
      expect_near(reference.logits(stream), std::span(logits).subspan(t * vocab, vocab));
    }
    expect_near(next_of(stream), loaded.state);
    first += count;
  }
  for (const std::int32_t token : {9, 33, 63}) {
    const auto logits = loaded.take({token}, std::vector<float>(loaded.state), true);
    stream = reference.take(token, next_of(stream));
    expect_near(reference.logits(stream), logits);
    expect_near(next_of(stream), loaded.state);
  }
}

TEST(DraftHead, ComputesWhatItsPaperSays) {
  const HeadFiles head = random_head();
  expect_reference_logits(head, HeadReference(head, "midlayer."));
}

TEST(DraftHead, MayDraftAllTokens) {
  const HeadFiles head = random_head({.draft_vocab = 64});
  expect_reference_logits(head, HeadReference(head, "midlayer."));
}

TEST(DraftHead, MayBeOfAnotherWidth) {
  HeadFiles head = random_head({.hidden = 48, .heads = 3, .kv_heads = 1, .head_dim = 16});
  expect_reference_logits(head, HeadReference(head, "midlayer."));
}

TEST(DraftHead, MayNormWhatItTakesAndGives) {
  HeadFiles head = random_head();
  head.config["eagle_config"] = {{"norm_before_fc", true}};
  head.config["norm_output"] = true;
  head.tensors["input_norm.weight"] = {{96}, std::vector<float>(96, 0.7F)};
  expect_reference_logits(head, HeadReference(head, "midlayer."), /*norms_output=*/true);
}

TEST(DraftHead, IsReadInTheFormatOfSpeculators) {
  HeadFiles head = as_speculators(random_head());
  head.config["norm_before_residual"] = true;
  head.config["transformer_layer_config"]["model_type"] = "qwen3";
  for (const char* name :
       {"layers.0.self_attn.q_norm.weight", "layers.0.self_attn.k_norm.weight"}) {
    head.tensors[name] = {{8}, {0.5F, 1.0F, 1.5F, 1.0F, 0.7F, 1.2F, 1.0F, 0.9F}};
  }
  HeadReference reference(head, "layers.0.");
  reference.norms_residual = true;
  expect_reference_logits(head, reference);
}

TEST(DraftHead, BorrowsTheEmbeddingsOfItsTarget) {
  HeadFiles head = random_head();
  const model::Weights lender = model::random_weights(target_spec(), DType::f32, 1);
  HeadFiles::Tensor& own = head.tensors.at("embed_tokens.weight");
  for (int token = 0; token < head.sizes.vocab; ++token) {
    ops::dequantize_row(lender.embedding, token, own.values.data() + token * head.sizes.hidden);
  }
  const HeadFiles full = head;
  head.tensors.erase("embed_tokens.weight");
  expect_reference_logits(head, HeadReference(full, "midlayer."));
}

std::vector<int> layers_of(const nlohmann::json& keys, int layers) {
  HeadFiles head = random_head();
  head.config.erase("eagle_aux_hidden_state_layer_ids");
  head.config.update(keys);
  const TempDir directory;
  head.write(directory.path());
  return model::open_draft_head(directory.path(), target_spec({.layers = layers}))
      .spec()
      .draft_head->after;
}

TEST(DraftHead, TakesTheLayersThatItsFileNames) {
  EXPECT_EQ(layers_of(nlohmann::json::object(), 36), (std::vector<int>{2, 18, 33}));
  EXPECT_EQ(layers_of({{"eagle_aux_hidden_state_layer_ids", {1, 4, 7}}}, 9),
            (std::vector<int>{1, 4, 7}));
  // The last layers that SGLang takes: their outputs.
  EXPECT_EQ(layers_of({{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 17, 32}}}}}, 36),
            (std::vector<int>{2, 18, 33}));
}

TEST(DraftHead, IsKnownByItsConfig) {
  const TempDir directory;
  EXPECT_FALSE(model::is_draft_head(directory.path()));
  random_head().write(directory.path());
  EXPECT_TRUE(model::is_draft_head(directory.path()));
  as_speculators(random_head()).write(directory.path());
  EXPECT_TRUE(model::is_draft_head(directory.path()));
  directory.write("config.json", R"({"architectures": ["LlamaForCausalLM"]})");
  EXPECT_FALSE(model::is_draft_head(directory.path()));
  directory.write("config.json", "[]");
  EXPECT_FALSE(model::is_draft_head(directory.path()));
}

TEST(DraftHead, IsNoModelByItself) {
  const TempDir directory;
  random_head().write(directory.path());
  EXPECT_THAT(error_of([&] { model::Checkpoint::open(directory.path()); }),
              HasSubstr("drafts for another model: give it to --draft-model"));
}

std::string refusal(const HeadFiles& head, const model::ModelSpec& target = target_spec()) {
  const TempDir directory;
  head.write(directory.path());
  const model::Weights lender = model::random_weights(target, DType::f32, 1);
  return error_of(
      [&] { model::load_draft_head(model::open_draft_head(directory.path(), target), lender); });
}

std::string refusal_with(const nlohmann::json& keys) {
  HeadFiles head = random_head();
  head.config.update(keys);
  return refusal(head);
}

TEST(DraftHead, OfAnotherModelIsRefused) {
  EXPECT_THAT(refusal(random_head(), target_spec({.hidden = 64})),
              HasSubstr("the head is for a model with hidden_size 32, the model's is 64"));
  EXPECT_THAT(refusal(random_head(), target_spec({.vocab = 65})),
              HasSubstr("the head is for a vocabulary of 64 tokens, the model's has 65"));
  EXPECT_THAT(refusal(random_head({}, {0, 1, 2})),
              HasSubstr("takes the model's states after 0, 1, 2 layers; the model has 2"));
}

TEST(DraftHead, OfAnotherKindIsRefused) {
  EXPECT_THAT(refusal_with({{"model_type", "deepseek_v3"}}), HasSubstr("\"deepseek_v3\""));
  EXPECT_THAT(refusal_with({{"num_hidden_layers", 2}}), HasSubstr("num_hidden_layers"));
  EXPECT_THAT(refusal_with({{"fc_norm", true}}), HasSubstr("fc_norm: heads with it"));
  EXPECT_THAT(refusal_with({{"eagle_aux_hidden_state_layer_ids", {"a"}}}),
              HasSubstr("eagle_aux_hidden_state_layer_ids: expected numbers of layers"));
  EXPECT_THAT(refusal_with({{"draft_vocab_size", 65}}), HasSubstr("draft_vocab_size"));
}

TEST(DraftHead, WithoutATensorIsRefusedByItsName) {
  for (const char* name : {"fc.weight", "midlayer.hidden_norm.weight", "norm.weight",
                           "midlayer.self_attn.q_proj.weight", "lm_head.weight"}) {
    HeadFiles head = random_head();
    head.tensors.erase(name);
    const std::string error = refusal(head);
    EXPECT_THAT(error, HasSubstr("model.safetensors: tensor \"")) << name;
    EXPECT_THAT(error, HasSubstr("is missing, expected shape [")) << name;
  }
  HeadFiles head = random_head();
  head.tensors.erase("midlayer.self_attn.q_proj.weight");
  EXPECT_THAT(refusal(head), HasSubstr("\"midlayer.self_attn.q_proj.weight\" is missing, expected "
                                       "shape [32, 64]"));
  head = random_head();
  head.tensors["fc.bias"] = {{32}, std::vector<float>(32)};
  EXPECT_THAT(refusal(head), HasSubstr("\"fc.bias\": heads with it"));
  head = random_head();
  head.tensors["midlayer.self_attn.q_proj.weight"] = {{32, 32}, std::vector<float>(32 * 32)};
  EXPECT_THAT(refusal(head), HasSubstr("has shape [32, 32], expected [32, 64]"));
}

TEST(DraftHead, WithWrongTokensIsRefused) {
  HeadFiles head = random_head();
  head.offsets.clear();
  EXPECT_THAT(refusal(head), HasSubstr("tensor \"d2t\" is missing"));
  head = random_head();
  head.offsets[39] = 25;
  EXPECT_THAT(refusal(head), HasSubstr("tensor \"d2t\" names a token outside the vocabulary"));
  head.offsets.pop_back();
  EXPECT_THAT(refusal(head), HasSubstr("shape [39], expected integers, [40]"));
}

}  // namespace
}  // namespace winnow::testing
