// A head that drafts is right where it knows what its model does: in chunks, batches, forks, behind
// prefixes, under rules that evict.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/threads.h"
#include "engine/drafting.h"

namespace winnow::engine::testing {
namespace {

using winnow::testing::HeadFiles;

// A model whose next token is a function of its last one, whatever its attention sees, and a head
// that knows this function. Both have a channel for each of 64 tokens.
constexpr int kWords = 64;

constexpr int word_after(int word) {
  return (5 * word + 3) % kWords;
}

std::vector<float> scaled_identity(int size, float scale) {
  std::vector<float> matrix(static_cast<std::size_t>(size * size));
  for (int i = 0; i < size; ++i) {
    matrix[static_cast<std::size_t>(i * size + i)] = scale;
  }
  return matrix;
}

// [rows, kWords]: row i has a logit for the word that precedes token(i).
template <class Token>
std::vector<float> logits_for_next(int rows, const Token& token) {
  std::vector<float> matrix(static_cast<std::size_t>(rows * kWords));
  for (int row = 0; row < rows; ++row) {
    for (int word = 0; word < kWords; ++word) {
      if (word_after(word) == token(row)) {
        matrix[static_cast<std::size_t>(row * kWords + word)] = 10.0F;
      }
    }
  }
  return matrix;
}

class PredictableModel {
 public:
  explicit PredictableModel(RuleKind rule) : model_(make(rule)), backend_(model_) {}
  [[nodiscard]] const Backend& backend() const { return backend_; }

 private:
  model::Model make(RuleKind rule) {
    const model::ModelSpec spec = tiny_model(
        rule,
        winnow::testing::Sizes{.hidden = kWords, .layers = 3, .head_dim = 16, .vocab = kWords});
    model::Weights weights = model::random_weights(spec, DType::f32, kSeed);
    weights.embedding = view(embedding_, {kWords, kWords});
    weights.head = view(head_, {kWords, kWords});
    for (model::LayerWeights& layer : weights.layers) {
      layer.output = view(nothing_, {kWords, kWords});
      layer.down = view(nothing_, {kWords, 48});
    }
    return {spec, std::move(weights)};
  }
  static ops::Weight view(const std::vector<float>& values, const Shape& shape) {
    return ops::weight_view({DType::f32, shape, reinterpret_cast<const std::byte*>(values.data())});
  }

  std::vector<float> embedding_ = scaled_identity(kWords, 1.0F);
  std::vector<float> head_ = logits_for_next(kWords, [](int row) { return row; });
  std::vector<float> nothing_ = std::vector<float>(std::size_t{kWords} * kWords);
  model::Model model_;
  CpuBackend backend_;
};

// Its stream is 8 times the last word's channel. Attention, which sees nothing but its own row,
// takes away the stream and adds the next word; what else the layer has is zero.
HeadFiles knowing_head(int draft_vocab) {
  const winnow::testing::HeadSizes sizes{.hidden = kWords,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 16,
                                         .vocab = kWords,
                                         .draft_vocab = draft_vocab,
                                         .target_hidden = kWords};
  HeadFiles head = random_head(sizes, {1, 2, 0});
  const auto set = [&](const std::string& name, const auto& value) {
    HeadFiles::Tensor& tensor = head.tensors.at(name);
    const auto columns = static_cast<int>(tensor.shape.back());
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      tensor.values[i] = value(static_cast<int>(i) / columns, static_cast<int>(i) % columns);
    }
  };
  const auto word = [](int row, int column) { return row == column ? 1.0F : 0.0F; };
  for (const char* norm :
       {"norm.weight", "midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight"}) {
    set(norm, [](int, int) { return 1.0F; });
  }
  set("embed_tokens.weight", word);
  set("fc.weight", [&](int row, int column) { return 8.0F * word(row + kWords, column); });
  for (const char* matrix :
       {"midlayer.self_attn.q_proj.weight", "midlayer.self_attn.k_proj.weight"}) {
    set(matrix, [](int row, int column) { return row % 16 < 8 && column < kWords ? 4.0F : 0.0F; });
  }
  set("midlayer.self_attn.v_proj.weight", [&](int row, int column) {
    return column < kWords ? word(row, column) : -word(row, column - kWords);
  });
  set("midlayer.self_attn.o_proj.weight", word);
  set("midlayer.mlp.down_proj.weight", [](int, int) { return 0.0F; });
  head.tensors.at("lm_head.weight").values = logits_for_next(draft_vocab, [&](int row) {
    return row + (head.offsets.empty()
                      ? 0
                      : static_cast<int>(head.offsets[static_cast<std::size_t>(row)]));
  });
  return head;
}

class KnowingHead : public ::testing::TestWithParam<RuleKind> {
 protected:
  void SetUp() override { set_threads(1); }
  EngineConfig drafting(const LoadedHead& head) const {
    return drafted_by(head.backend(), roomy(GetParam()));
  }
  PredictableModel target_{GetParam()};
};

INSTANTIATE_TEST_SUITE_P(Rules, KnowingHead,
                         ::testing::Values(RuleKind::dense, RuleKind::dms, RuleKind::h2o),
                         [](const auto& info) {
                           return std::string(kvcache::rule_name(info.param));
                         });

Tokens words_after(std::int32_t word, int count) {
  Tokens words;
  for (; count > 0; --count) {
    words.push_back(word = word_after(word));
  }
  return words;
}

TEST_P(KnowingHead, IsAlwaysRight) {
  const LoadedHead head(knowing_head(kWords), target_.backend().spec());
  for (const int chunk : {512, 7}) {
    EngineConfig config = drafting(head);
    config.step_tokens = chunk;
    const Request request = reader(60, 70).request;
    EngineStats stats;
    const Answer answer = serve_drafted(target_.backend(), config, request, stats);
    EXPECT_EQ(answer.tokens, words_after(request.prompt.back(), 70));
    EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
    EXPECT_GE(stats.accepted_tokens, 50);
  }
}

TEST_P(KnowingHead, IsRightAboutTheTokensThatItKnows) {
  const LoadedHead head(knowing_head(48), target_.backend().spec());
  const Request request = reader(60, 200).request;
  EngineStats stats;
  const Answer answer = serve_drafted(target_.backend(), drafting(head), request, stats);
  EXPECT_EQ(answer.tokens, words_after(request.prompt.back(), 200));
  EXPECT_LT(stats.accepted_tokens, stats.drafted_tokens);
  EXPECT_GE(stats.accepted_tokens, 60);
}

TEST_P(KnowingHead, IsRightInBatchesForksAndBehindPrefixes) {
  const LoadedHead head(knowing_head(kWords), target_.backend().spec());
  EngineConfig config = drafting(head);
  config.step_tokens = 40;
  config.reuse_prefixes = true;
  Engine engine(target_.backend(), config);
  for (int turn = 0; turn < 2; ++turn) {
    Request request = reader(100 + 40 * turn, 30).request;
    request.samples = 2;
    engine.submit(request);
    request.prompt = spread_tokens(50, 5);
    engine.submit(request);
    std::map<std::pair<RequestId, int>, Tokens> answers;
    while (!engine.idle()) {
      for (const TokenEvent& event : engine.step()) {
        answers[{event.request, event.sample}].push_back(event.token);
      }
    }
    EXPECT_EQ(answers.size(), 4U);
    for (const auto& [id, tokens] : answers) {
      EXPECT_EQ(Tokens(tokens.begin() + 1, tokens.end()), words_after(tokens.front(), 29));
    }
  }
  EXPECT_EQ(engine.stats().accepted_tokens, engine.stats().drafted_tokens);
  EXPECT_GE(engine.stats().accepted_tokens, 100);
}

}  // namespace
}  // namespace winnow::engine::testing
