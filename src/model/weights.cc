#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/random.h"
#include "base/threads.h"

namespace winnow::model {
namespace {

using Tensors = std::map<std::string, TensorView, std::less<>>;

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
  Binder(const ModelConfig& config, const Tensors& tensors, std::optional<ops::WeightFormat> format)
      : config_(config), tensors_(tensors), format_(format) {
    weights_.quantized.reserve(static_cast<std::size_t>(config.layers) * 7 + 2);
  }

  Weights bind() {
    weights_.embedding = matrix("model.embed_tokens.weight");
    weights_.head = config_.tied_embeddings ? weights_.embedding : matrix("lm_head.weight");
    weights_.norm = vector("model.norm.weight");
    for (int i = 0; i < config_.layers; ++i) {
      weights_.layers.push_back(layer("model.layers." + std::to_string(i) + "."));
    }
    return std::move(weights_);
  }

 private:
  [[nodiscard]] const TensorView& tensor(const std::string& name) const {
    const auto found = tensors_.find(name);
    require(found != tensors_.end(), "tensor {} is missing", name);
    return found->second;
  }
  [[nodiscard]] std::vector<float> vector(const std::string& name) const {
    return to_floats(tensor(name));
  }
  [[nodiscard]] std::vector<float> vector_if(bool wanted, const std::string& name) const {
    return wanted ? vector(name) : std::vector<float>();
  }
  ops::Weight matrix(const std::string& name) {
    const ops::Weight stored = ops::weight_view(tensor(name));
    if (!format_) {
      return stored;
    }
    require(stored.cols % ops::QuantizedWeight::kGroup == 0,
            "tensor {} has {} columns: quantised weights need a multiple of {}", name, stored.cols,
            ops::QuantizedWeight::kGroup);
    return weights_.quantized.emplace_back(stored, *format_).view();
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
      w.adapter.projection = ops::weight_view(tensor(name + ".weight"));
      w.adapter.bias = vector_if(tensors_.contains(name + ".bias"), name + ".bias");
    }
    return w;
  }

  const ModelConfig& config_;
  const Tensors& tensors_;
  std::optional<ops::WeightFormat> format_;
  Weights weights_;
};

bool is_norm(std::string_view name) {
  return name.find("norm") != std::string_view::npos;
}

// Uniform numbers with the spread of a usual initialisation; norms are all ones.
void fill_random(std::span<std::byte> memory, DType type, std::string_view name,
                 std::int64_t columns, std::uint64_t seed) {
  const std::size_t count = memory.size() / dtype_size(type);
  const float spread = is_norm(name) ? 0.0F : std::sqrt(3.0F / static_cast<float>(columns));
  const float center = is_norm(name) ? 1.0F : 0.0F;
  parallel_ranges(count, [&](std::size_t begin, std::size_t end, int) {
    Random random(seed, begin);
    for (std::size_t i = begin; i < end; ++i) {
      const auto uniform = static_cast<float>(random.uniform()) * 2.0F - 1.0F;
      const float value = center + spread * uniform;
      if (type == DType::f32) {
        reinterpret_cast<float*>(memory.data())[i] = value;
      } else if (type == DType::bf16) {
        reinterpret_cast<bf16*>(memory.data())[i] = to_bf16(value);
      } else {
        reinterpret_cast<f16*>(memory.data())[i] = to_f16(value);
      }
    }
  });
}

}  // namespace

std::size_t Weights::bytes_per_step() const {
  std::size_t total = head.bytes();
  for (const LayerWeights& layer : layers) {
    for (const ops::Weight* weight : {&layer.query, &layer.key, &layer.value, &layer.output,
                                      &layer.gate, &layer.up, &layer.down}) {
      total += weight->bytes();
    }
  }
  return total;
}

std::size_t Weights::bytes() const {
  return bytes_per_step() + (embedding.data == head.data ? 0 : embedding.bytes());
}

Weights load_weights(const Checkpoint& checkpoint, std::optional<ops::WeightFormat> format) {
  Weights weights = Binder(checkpoint.config(), checkpoint.tensors(), format).bind();
  weights.owners.push_back(std::make_shared<const Checkpoint>(checkpoint));
  return weights;
}

Weights random_weights(const ModelConfig& config, DType type, std::uint64_t seed,
                       std::optional<ops::WeightFormat> format) {
  Tensors tensors;
  std::vector<std::shared_ptr<const void>> owners;
  for (const auto& [name, shape] : expected_tensors(config)) {
    const auto bytes = static_cast<std::size_t>(element_count(shape)) * dtype_size(type);
    auto memory = std::make_shared<Buffer<std::byte>>(bytes);
    fill_random(memory->span(), type, name, shape.back(), seed ^ std::hash<std::string>()(name));
    tensors[name] = {type, shape, memory->data()};
    owners.push_back(std::move(memory));
  }
  Weights weights = Binder(config, tensors, format).bind();
  weights.owners = std::move(owners);
  return weights;
}

}  // namespace winnow::model
