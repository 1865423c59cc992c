#include "model/weights.h"

#include <utility>

#include "base/error.h"
#include "base/mapped_file.h"
#include "model/tensor_source.h"

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
  Binder(const ModelConfig& config, TensorSource& source, std::optional<ops::WeightFormat> format)
      : config_(config), source_(source), format_(format) {
    weights_.quantized.reserve(static_cast<std::size_t>(config.layers) * 7 + 2);
  }

  Weights bind() {
    weights_.embedding = matrix("model.embed_tokens.weight");
    const bool own_head = !config_.tied_embeddings || source_.contains("lm_head.weight");
    weights_.head = own_head ? matrix("lm_head.weight") : weights_.embedding;
    weights_.norm = vector("model.norm.weight");
    for (int i = 0; i < config_.layers; ++i) {
      weights_.layers.push_back(layer("model.layers." + std::to_string(i) + "."));
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

  LayerWeights layer(const std::string& prefix) {
    const std::string attention = prefix + "self_attn.";
    const std::string mlp = prefix + "mlp.";
    LayerWeights w;
    w.attention_norm = vector(prefix + "input_layernorm.weight");
    w.mlp_norm = vector(prefix + "post_attention_layernorm.weight");
    w.query_norm = vector_if(config_.qk_norm, attention + "q_norm.weight");
    w.key_norm = vector_if(config_.qk_norm, attention + "k_norm.weight");
    w.query_bias = vector_if(config_.qkv_bias, attention + "q_proj.bias");
    w.key_bias = vector_if(config_.qkv_bias, attention + "k_proj.bias");
    w.value_bias = vector_if(config_.qkv_bias, attention + "v_proj.bias");
    w.output_bias = vector_if(config_.output_bias, attention + "o_proj.bias");
    w.gate_bias = vector_if(config_.mlp_bias, mlp + "gate_proj.bias");
    w.up_bias = vector_if(config_.mlp_bias, mlp + "up_proj.bias");
    w.down_bias = vector_if(config_.mlp_bias, mlp + "down_proj.bias");
    w.query = matrix(attention + "q_proj.weight");
    w.key = matrix(attention + "k_proj.weight");
    w.value = matrix(attention + "v_proj.weight");
    w.output = matrix(attention + "o_proj.weight");
    w.gate = matrix(mlp + "gate_proj.weight");
    w.up = matrix(mlp + "up_proj.weight");
    w.down = matrix(mlp + "down_proj.weight");
    if (config_.dms && config_.dms->source == DmsConfig::Source::adapter) {
      const std::string name = attention + "dms_proj_alpha";
      w.adapter.norm = vector(name + "_norm.weight");
      w.adapter.projection = ops::weight_view(source_.get(name + ".weight"));
      w.adapter.bias = vector_if(source_.contains(name + ".bias"), name + ".bias");
    }
    return w;
  }

  const ModelConfig& config_;
  TensorSource& source_;
  std::optional<ops::WeightFormat> format_;
  Weights weights_;
};

// The tensors of a checkpoint, where its files are mapped.
class StoredTensors : public TensorSource {
 public:
  explicit StoredTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {}

  [[nodiscard]] bool contains(const std::string& name) const override {
    return checkpoint_.tensors().contains(name);
  }
  TensorView get(const std::string& name) override {
    const auto found = checkpoint_.tensors().find(name);
    require(found != checkpoint_.tensors().end(), "tensor {} is missing", name);
    return found->second;
  }
  void release(const std::string& name) override {
    const TensorView tensor = get(name);
    MappedFile::release({tensor.data, tensor.bytes()});
  }

 private:
  const Checkpoint& checkpoint_;
};

}  // namespace

std::vector<ops::Weight> Weights::matrices() const {
  std::vector<ops::Weight> result{head};
  for (const LayerWeights& layer : layers) {
    for (const ops::Weight* weight : {&layer.query, &layer.key, &layer.value, &layer.output,
                                      &layer.gate, &layer.up, &layer.down}) {
      result.push_back(*weight);
    }
  }
  return result;
}

std::size_t Weights::bytes_per_step() const {
  std::size_t total = 0;
  for (const ops::Weight& weight : matrices()) {
    total += weight.bytes();
  }
  return total;
}

std::size_t Weights::bytes() const {
  return bytes_per_step() + (embedding.data == head.data ? 0 : embedding.bytes());
}

Weights bind_weights(const ModelConfig& config, TensorSource& source,
                     std::optional<ops::WeightFormat> format) {
  return Binder(config, source, format).bind();
}

Weights load_weights(const Checkpoint& checkpoint, std::optional<ops::WeightFormat> format) {
  StoredTensors tensors(checkpoint);
  Weights weights = bind_weights(checkpoint.config(), tensors, format);
  weights.owners.push_back(std::make_shared<const Checkpoint>(checkpoint));
  return weights;
}

}  // namespace winnow::model
