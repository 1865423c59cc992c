// A model whose next token is a function of its last one, and a head that knows this function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/drafting.h"

namespace winnow::engine::testing {

// Model and head have a channel for each of 64 tokens.
inline constexpr int kWords = 64;

constexpr int word_after(int word) {
  return (5 * word + 3) % kWords;
}

inline std::vector<float> scaled_identity(int size, float scale) {
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

inline constexpr winnow::testing::Sizes kWordSizes{
    .hidden = kWords, .layers = 3, .head_dim = 16, .vocab = kWords};

class PredictableModel {
 public:
  explicit PredictableModel(RuleKind rule) : PredictableModel(tiny_model(rule, kWordSizes)) {}
  explicit PredictableModel(const model::ModelSpec& spec) : model_(make(spec)), backend_(model_) {}
  [[nodiscard]] const model::Model& model() const { return model_; }
  [[nodiscard]] const Backend& backend() const { return backend_; }

 private:
  model::Model make(const model::ModelSpec& spec) {
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
inline winnow::testing::HeadFiles knowing_head(int draft_vocab) {
  const winnow::testing::HeadSizes sizes{.hidden = kWords,
                                         .heads = 4,
                                         .kv_heads = 4,
                                         .head_dim = 16,
                                         .vocab = kWords,
                                         .draft_vocab = draft_vocab,
                                         .target_hidden = kWords};
  winnow::testing::HeadFiles head = random_head(sizes, {1, 2, 0});
  const auto set = [&](const std::string& name, const auto& value) {
    winnow::testing::HeadFiles::Tensor& tensor = head.tensors.at(name);
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

// An MTP layer that knows the function: it maps the channel of a row's stream, that of the last
// word or its own of the row before, to the next word's, and adds nothing to it.
inline winnow::testing::MtpFiles knowing_layer(const std::string& family,
                                               const model::ModelSpec& target) {
  winnow::testing::MtpFiles files(winnow::testing::mtp_family(family), kWordSizes);
  const float one = 1.0F - target.final_norm.offset();
  const auto fill = [](winnow::testing::HeadFiles::Tensor& tensor, float value) {
    std::ranges::fill(tensor.values, value);
  };
  for (auto& [name, tensor] : files.extra) {
    fill(tensor, one);
  }
  fill(files.layer.at("model.norm.weight"), one);
  fill(files.layer.at("model.layers.0.self_attn.o_proj.weight"), 0.0F);
  fill(files.layer.at("model.layers.0.mlp.down_proj.weight"), 0.0F);
  winnow::testing::HeadFiles::Tensor& fusion = files.extra.at(files.family.names.fusion);
  fill(fusion, 0.0F);
  const int stream = files.family.stream_first ? 0 : kWords;
  for (int word = 0; word < kWords; ++word) {
    fusion.values[static_cast<std::size_t>(word_after(word) * 2 * kWords + stream + word)] = 1.0F;
  }
  return files;
}

/// The tokens that follow.
inline Tokens words_after(std::int32_t word, int count) {
  Tokens words;
  for (; count > 0; --count) {
    words.push_back(word = word_after(word));
  }
  return words;
}

/// All drafts of a PredictableModel are right, whatever the chunks of the prompt.
inline void expect_right_drafts(const Backend& target, EngineConfig config) {
  for (const int chunk : {512, 7}) {
    config.step_tokens = chunk;
    const Request request = reader(60, 70).request;
    EngineStats stats;
    const Answer answer = serve_drafted(target, config, request, stats);
    EXPECT_EQ(answer.tokens, words_after(request.prompt.back(), 70));
    EXPECT_EQ(stats.accepted_tokens, stats.drafted_tokens);
    EXPECT_GE(stats.accepted_tokens, 50);
  }
}

}  // namespace winnow::engine::testing
