#include "train/initial_model.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/whole_file.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/model_path.h"
#include "tokenizer/gguf_tokenizer.h"
#include "train/parameters.h"
#include "train/rounded.h"

namespace winnow::train {
namespace {

namespace fs = std::filesystem;

bool ends_a_block(const model::ModelSpec& spec, const std::string& name) {
  return name.ends_with("o_proj.weight") || name.ends_with("linear_attn.out_proj.weight") ||
         name.ends_with("down_proj.weight") ||
         name.ends_with("." + spec.names.expert_down + ".weight");
}

bool belongs_to_kv_heads(const std::string& name) {
  return name.find(".k_proj.") != std::string::npos || name.find(".v_proj.") != std::string::npos;
}

// The weight for which a norm only divides.
float neutral_norm(const model::ModelSpec& spec, const std::string& name) {
  if (name.ends_with("linear_attn.norm.weight")) {
    return 1.0F;  // in all families
  }
  return 1.0F - spec.final_norm.offset();
}

// Norms and factors start at their neutral value, biases and the like at 0.
float neutral_vector(const model::ModelSpec& spec, const std::string& name) {
  if (name.ends_with("norm.weight")) {
    return neutral_norm(spec, name);
  }
  return name.ends_with("scale") || name.ends_with("layer_scalar") ? 1.0F : 0.0F;
}

// Tensors that own their memory.
class NewTensors {
 public:
  void add(const std::string& name, const Shape& shape, DType type, std::span<const float> values) {
    Buffer<std::byte>& bytes = memory_[name] = rounded(values, type);
    map[name] = {type, shape, bytes.data()};
  }

  TensorMap map;

 private:
  std::map<std::string, Buffer<std::byte>> memory_;
};

// Values of `heads` heads averaged over groups of neighbouring heads.
std::vector<float> pooled(std::span<const float> values, std::size_t heads, std::size_t group) {
  const std::size_t size = values.size() / heads;
  std::vector<float> result(values.size() / group);
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t i = 0; i < size; ++i) {
      result[head / group * size + i] += values[head * size + i] / static_cast<float>(group);
    }
  }
  return result;
}

}  // namespace

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  std::error_code error;
  if (fs::equivalent(from, to, error)) {
    return;
  }
  if (is_gguf_model(from)) {
    write_gguf_tokenizer(gguf::File(from), to);
    return;
  }
  for (const char* name :
       {"tokenizer.json", "tokenizer.model", "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "chat_template.jinja", "vocab.json", "merges.txt"}) {
    if (fs::is_regular_file(from / name, error)) {
      write_text_file(to / name, read_whole_file(from / name));  // as a whole or not at all
    }
  }
}

void write_initial_model(const fs::path& source, const fs::path& directory, DType type,
                         std::uint64_t seed) {
  model::ModelSpec spec = model::read_spec(source);
  spec.dtype = type;
  const double residual = 1.0 / std::sqrt(2.0 * spec.layer_count());
  NewTensors tensors;
  std::uint64_t stream = 0;
  for (const auto& [name, shape] : model::expected_tensors(spec)) {
    std::vector<float> values(static_cast<std::size_t>(element_count(shape)));
    Random random(seed, stream++);
    const double spread = 0.02 * (ends_a_block(spec, name) ? residual : 1.0);
    if (shape.size() > 1) {
      std::ranges::generate(values, [&] { return static_cast<float>(spread * random.normal()); });
    } else {
      std::ranges::fill(values, neutral_vector(spec, name));
    }
    tensors.add(name, shape, type, values);
  }
  model::save_checkpoint(directory, spec, tensors.map);
  copy_tokenizer(source, directory);
}

void write_grouped_model(const model::Checkpoint& source, const fs::path& directory, int kv_heads) {
  model::ModelSpec spec = source.spec();
  require(spec.has_equal_heads(), "--kv-heads: layers of the model have heads of different shapes");
  require(kv_heads >= 1 && spec.attention().kv_heads % kv_heads == 0,
          "--kv-heads {}: expected a divisor of the model's {}", kv_heads,
          spec.attention().kv_heads);
  const auto heads = static_cast<std::size_t>(spec.attention().kv_heads);
  const std::size_t group = heads / static_cast<std::size_t>(kv_heads);
  for (model::LayerSpec& layer : spec.layers) {
    if (auto* attention = std::get_if<model::AttentionSpec>(&layer.mixer)) {
      attention->kv_heads = kv_heads;
    }
  }
  NewTensors tensors;
  for (const auto& [name, shape] : model::expected_tensors(spec)) {
    const TensorView& tensor = source.tensor(name);
    if (!belongs_to_kv_heads(name)) {
      tensors.map[name] = tensor;
      continue;
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.count()));
    widen(tensor, values);
    tensors.add(name, shape, tensor.dtype, pooled(values, heads, group));
  }
  model::save_checkpoint(directory, spec, tensors.map);
  copy_tokenizer(source.directory(), directory);
}

}  // namespace winnow::train
