#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "model/cost.h"
#include "model/packed_weight.h"
#include "model/sharded_tensors.h"
#include "model/tensor_source.h"
#include "model/visit_tensors.h"

namespace winnow::model {
namespace {

std::vector<float> to_floats(const TensorView& tensor) {
  std::vector<float> result(static_cast<std::size_t>(tensor.count()));
  TensorView row = tensor;
  row.shape = {1, tensor.count()};
  ops::dequantize_row(ops::weight_view(row), 0, result.data());
  return result;
}

// Looks tensors up by name and shapes them into Weights.
class Binder {
 public:
  Binder(const ModelSpec& spec, TensorSource& source, std::optional<ops::WeightFormat> format)
      : spec_(spec), source_(source), format_(format) {
    weights_.quantized.reserve(static_cast<std::size_t>(spec.layer_count()) * 7 + 3);
  }

  Weights bind(const OnLayer& on_layer) {
    const auto tell = [&](int done) {
      if (on_layer) {
        on_layer(done, spec_.layer_count());
      }
    };
    tell(0);
    if (!spec_.draft_head || spec_.draft_head->own_embedding) {
      weights_.embedding = matrix("model.embed_tokens.weight");
    }
    if (!spec_.draft_head || spec_.draft_head->own_output) {
      const bool own_head = !spec_.tied_embeddings || source_.contains("lm_head.weight");
      weights_.head = own_head ? matrix("lm_head.weight") : weights_.embedding;
    }
    if (!spec_.draft_head || spec_.draft_head->own_norm) {
      weights_.norm = norm("model.norm.weight", spec_.final_norm);
    }
    weights_.norm_bias = vector_if(spec_.final_norm.bias, "model.norm.bias");
    weights_.head_bias = vector_if(spec_.head_bias, "lm_head.bias");
    if (spec_.layer_embeddings) {
      weights_.layer_embedding = matrix("model.embed_tokens_per_layer.weight");
      weights_.layer_projection = matrix("model.per_layer_model_projection.weight");
      weights_.layer_projection_norm =
          norm("model.per_layer_projection_norm.weight", spec_.final_norm);
    }
    if (spec_.draft_head) {
      bind_draft_head();
    }
    for (int i = 0; i < spec_.layer_count(); ++i) {
      weights_.layers.push_back(layer(i));
      tell(i + 1);
    }
    return std::move(weights_);
  }

 private:
  [[nodiscard]] std::vector<float> vector(const std::string& name) const {
    return to_floats(source_.get(name));
  }
  [[nodiscard]] std::vector<float> vector_if(bool wanted, const std::string& name) const {
    return wanted ? vector(name) : std::vector<float>();
  }
  ops::Weight matrix(const std::string& name) {
    if (const auto as_stored = source_.quantized(name)) {
      return *as_stored;
    }
    const ops::Weight stored = ops::weight_view(source_.get(name));
    if (!format_) {
      return stored;
    }
    require(stored.cols % ops::QuantizedWeight::kGroup == 0,
            "tensor {} has {} columns: quantised weights need a multiple of {}", name, stored.cols,
            ops::QuantizedWeight::kGroup);
    const ops::Weight result = weights_.quantized.emplace_back(stored, *format_).view();
    source_.release(name);
    return result;
  }

  // Norms whose weight counts from 1 are stored as what they multiply by.
  [[nodiscard]] std::vector<float> norm(const std::string& name, const NormSpec& spec) const {
    std::vector<float> weight = vector(name);
    if (const float offset = spec.offset(); offset != 0.0F) {
      std::ranges::transform(weight, weight.begin(), [offset](float w) { return offset + w; });
    }
    return weight;
  }

  LayerWeights layer(int index) {
    LayerWeights w;
    visit_layer(spec_, index, w, [&](const std::string& name, const Shape&, auto& member) {
      if constexpr (std::is_same_v<decltype(member), ops::Weight&>) {
        // A choice of experts made in few bits would be another choice, and what a state forgets
        // adds up.
        const bool exact = &member == &w.router || &member == &w.shared_gate ||
                           &member == &w.recurrent.rate || &member == &w.recurrent.decay;
        const bool packed = exact && source_.quantized(name).has_value();
        member = exact && !packed ? ops::weight_view(source_.get(name)) : matrix(name);
      } else {
        // That of a recurrent mixer's heads is plain in all families.
        const bool is_norm = name.ends_with("norm.weight") && &member != &w.recurrent.norm;
        member = is_norm ? norm(name, spec_.layer(index).norm) : vector(name);
      }
    });
    for (float& weight : w.router_norm) {
      weight /= std::sqrt(static_cast<float>(spec_.hidden));
    }
    if (const AttentionSpec* attention = spec_.layer(index).attention()) {
      fill_head_norms(*attention, w);
    }
    if (spec_.has_adapter(index)) {
      bind_adapter(index, w);
    }
    return w;
  }

  void bind_draft_head() {
    visit_draft_head(spec_, weights_.draft_head,
                     [&](const std::string& name, const Shape&, auto& member) {
                       if constexpr (std::is_same_v<decltype(member), ops::Weight&>) {
                         member = matrix(name);
                       } else {
                         member = norm(name, spec_.final_norm);
                       }
                     });
  }

  void bind_adapter(int index, LayerWeights& layer) {
    AdapterWeights& w = layer.adapter;
    if (!spec_.dms->adapter.own_norm && spec_.layer(index).norm_before) {
      w.norm = layer.attention_norm;
    }
    visit_adapter(spec_, index, w, [&](const std::string& name, const Shape&, auto& member) {
      if constexpr (std::is_same_v<decltype(member), ops::Weight&>) {
        member = ops::weight_view(source_.get(name));
      } else {
        member = vector_if(&member != &w.bias || source_.contains(name), name);
      }
    });
  }

  // Those that files have no weights of.
  static void fill_head_norms(const AttentionSpec& attention, LayerWeights& w) {
    if (attention.query_key_norm != AttentionSpec::QueryKeyNorm::none && !attention.norm_weights) {
      w.query_norm.assign(static_cast<std::size_t>(attention.head_dim), 1.0F);
      w.key_norm = w.query_norm;
    }
  }

  const ModelSpec& spec_;
  TensorSource& source_;
  std::optional<ops::WeightFormat> format_;
  Weights weights_;
};

// What becomes of a checkpoint's quantised matrices.
enum class QuantizedAs : std::uint8_t {
  plain,       // all are converted
  stored,      // those that can stay packed do
  requantized  // each is converted when it is wanted, and let go when it has been packed again
};

// The tensors of a checkpoint, where its files are mapped.
class StoredTensors : public TensorSource {
 public:
  StoredTensors(const Checkpoint& checkpoint, QuantizedAs quantized)
      : checkpoint_(checkpoint),
        quantized_(quantized),
        tensors_(quantized == QuantizedAs::plain    ? checkpoint.tensors()
                 : quantized == QuantizedAs::stored ? checkpoint.tensors_but_packed()
                                                    : checkpoint.tensors_as_stored()) {}

  [[nodiscard]] bool contains(const std::string& name) const override {
    return tensors_.contains(name);
  }
  TensorView get(const std::string& name) override {
    const auto found = tensors_.find(name);
    require(found != tensors_.end(), "tensor {} is missing", name);
    TensorView tensor = found->second;
    if (tensor.data == nullptr) {
      auto [place, is_new] = memory_->converted.try_emplace(name);
      if (is_new) {
        place->second = checkpoint_.converted(name);
      }
      tensor.data = place->second.data();
    }
    return tensor;
  }
  std::optional<ops::Weight> quantized(const std::string& name) override {
    const auto* matrix = quantized_ == QuantizedAs::stored ? checkpoint_.packed(name) : nullptr;
    if (matrix == nullptr) {
      return std::nullopt;
    }
    return memory_->packed.try_emplace(name, *matrix).first->second.view();
  }
  /// Keeps alive what get() and quantized() gave.
  [[nodiscard]] std::shared_ptr<const void> memory() const { return memory_; }
  void release(const std::string& name) override {
    if (memory_->packed.erase(name) == 0 && memory_->converted.erase(name) == 0) {
      checkpoint_.release(name);
    }
  }

 private:
  struct Memory {
    std::map<std::string, PackedWeight> packed;
    std::map<std::string, Buffer<std::byte>> converted;
  };

  const Checkpoint& checkpoint_;
  QuantizedAs quantized_;
  const TensorMap& tensors_;
  std::shared_ptr<Memory> memory_ = std::make_shared<Memory>();
};

// Those of latent attention that are multiplied head by head.
void add_heads(const LatentWeights& latent, std::vector<ops::Weight>& result) {
  if (latent.key_up.data == nullptr) {
    return;
  }
  const auto rank = static_cast<std::int64_t>(latent.norm.size());
  const std::int64_t heads = latent.key_up.rows / rank;
  const std::int64_t value_dim = latent.value_up.rows / heads;
  for (std::int64_t h = 0; h < heads; ++h) {
    result.push_back(ops::rows_of(latent.key_up, h * rank, rank));
    result.push_back(ops::rows_of(latent.value_up, h * value_dim, value_dim));
  }
}

}  // namespace

std::vector<ops::Weight> Weights::matrices() const {
  std::vector<ops::Weight> result{head};
  for (const ops::Weight* weight : {&layer_projection, &draft_head.fusion}) {
    if (weight->data != nullptr) {
      result.push_back(*weight);
    }
  }
  for (const LayerWeights& layer : layers) {
    for (const ops::Weight* weight :
         {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate, &layer.up,
          &layer.down, &layer.router, &layer.shared_gate, &layer.recurrent.input_gate,
          &layer.recurrent.input, &layer.recurrent.gate, &layer.recurrent.rate,
          &layer.recurrent.decay, &layer.recurrent.output, &layer.latent.query_down,
          &layer.embedding_gate, &layer.embedding_output}) {
      if (weight->data != nullptr) {
        result.push_back(*weight);
      }
    }
    add_heads(layer.latent, result);
  }
  return result;
}

std::size_t Weights::bytes_per_step(const ModelSpec& spec, int sequences) const {
  std::size_t total = 0;
  for (const ops::Weight& weight : matrices()) {
    total += weight.bytes();
  }
  if (const FeedForwardSpec* what = spec.experts()) {
    total += static_cast<std::size_t>(static_cast<double>(expert_bytes()) *
                                      share_of_experts(*what->experts, sequences));
  }
  return total;
}

std::size_t Weights::expert_bytes() const {
  std::size_t total = 0;
  for (const LayerWeights& layer : layers) {
    for (const ExpertWeights& expert : layer.experts) {
      total += expert.gate.bytes() + expert.up.bytes() + expert.down.bytes();
    }
  }
  return total;
}

Weights bind_weights(const ModelSpec& spec, TensorSource& source,
                     std::optional<ops::WeightFormat> format, const OnLayer& on_layer) {
  return Binder(spec, source, format).bind(on_layer);
}

Weights load_weights(const Checkpoint& checkpoint, std::optional<ops::WeightFormat> format,
                     bool keep_packed, const Shard& shard, const OnLayer& on_layer) {
  const QuantizedAs quantized = format        ? QuantizedAs::requantized
                                : keep_packed ? QuantizedAs::stored
                                              : QuantizedAs::plain;
  StoredTensors tensors(checkpoint, quantized);
  Weights weights = bind_shard(checkpoint.spec(), shard, tensors, format, on_layer);
  weights.owners.push_back(std::make_shared<const Checkpoint>(checkpoint));
  weights.owners.push_back(tensors.memory());
  return weights;
}

}  // namespace winnow::model
