#include "model/gguf_model.h"

#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"

namespace winnow::model {
namespace {

using nlohmann::json;

/// llama.cpp's names of what winnow reads, with transformers'.
constexpr std::array<std::string_view, 3> kArchitectures{"llama", "qwen2", "qwen3"};

/// The text under `key`.
std::string text_of(const gguf::File& file, const std::string& key, const std::string& absent) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    return absent;
  }
  require(found->is_string(), "{}: {}: expected a text, got {}", file.path().string(), key,
          described(*found));
  return found->get<std::string>();
}

/// The metadata of one architecture.
class Metadata {
 public:
  explicit Metadata(const gguf::File& file)
      : file_(file), architecture_(text_of(file, "general.architecture", "")) {}

  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] const json* find(const std::string& key) const {
    const auto found = file_.metadata().find(architecture_ + "." + key);
    return found == file_.metadata().end() ? nullptr : &*found;
  }
  [[nodiscard]] json need(const std::string& key) const {
    const json* value = find(key);
    require(value != nullptr, "{}: {}.{} is missing", file_.path().string(), architecture_, key);
    return single(key, *value);
  }
  [[nodiscard]] json get(const std::string& key, json absent) const {
    const json* value = find(key);
    return value == nullptr ? absent : single(key, *value);
  }

 private:
  /// Files of models whose layers differ have an array.
  [[nodiscard]] json single(const std::string& key, const json& value) const {
    if (!value.is_array()) {
      return value;
    }
    require(!value.empty() && std::adjacent_find(value.begin(), value.end(),
                                                 std::not_equal_to<>()) == value.end(),
            "{}: {}.{}: layers that differ are not supported", file_.path().string(), architecture_,
            key);
    return value.front();
  }

  const gguf::File& file_;
  std::string architecture_;
};

const gguf::Tensor& need_tensor(const gguf::File& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  require(found != file.tensors().end(), "{}: tensor {} is missing", file.path().string(),
          in_quotes(name));
  return found->second;
}

/// What a frequency of Llama 3.1's RoPE is divided by.
double llama3_divisor(double frequency, double factor) {
  constexpr double kContext = 8192.0;
  constexpr double kLow = 1.0;
  constexpr double kHigh = 4.0;
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  if (wavelength < kContext / kHigh) {
    return 1.0;
  }
  if (wavelength > kContext / kLow) {
    return factor;
  }
  const double smooth = (kContext / wavelength - kLow) / (kHigh - kLow);
  return 1.0 / ((1.0 - smooth) / factor + smooth);
}

/// ggml keeps what frequencies are divided by; of these, the ones that follow from Llama 3.1's rule
/// are known.
json read_divisors(const gguf::File& file, const gguf::Tensor& tensor, double theta) {
  require(tensor.type == gguf::kF32, "{}: rope_freqs.weight: expected F32", file.path().string());
  std::vector<float> divisors(tensor.bytes.size() / sizeof(float));
  std::memcpy(divisors.data(), tensor.bytes.data(), tensor.bytes.size());
  require(!divisors.empty(), "{}: rope_freqs.weight is empty", file.path().string());
  const double factor = divisors.back();
  const auto count = static_cast<double>(divisors.size());
  for (std::size_t i = 0; i < divisors.size(); ++i) {
    const double expected =
        llama3_divisor(std::pow(theta, -static_cast<double>(i) / count), factor);
    require(std::abs(divisors[i] - expected) <= 1e-3 * expected,
            "{}: rope_freqs.weight: element {} is {}, expected {} as in Llama 3.1",
            file.path().string(), i, divisors[i], expected);
  }
  return {{"rope_type", "llama3"},
          {"factor", factor},
          {"low_freq_factor", 1.0},
          {"high_freq_factor", 4.0},
          {"original_max_position_embeddings", 8192}};
}

json read_rope_scaling(const gguf::File& file, const Metadata& metadata, double theta) {
  if (const auto found = file.tensors().find("rope_freqs.weight"); found != file.tensors().end()) {
    return read_divisors(file, found->second, theta);
  }
  const std::string type = text_of(file, metadata.architecture() + ".rope.scaling.type", "none");
  if (type == "none") {
    return nullptr;
  }
  json scaling = {{"rope_type", type}, {"factor", metadata.need("rope.scaling.factor")}};
  if (const json* context = metadata.find("rope.scaling.original_context_length")) {
    scaling["original_max_position_embeddings"] = *context;
  }
  return scaling;
}

/// The type that the embeddings have; bf16 when they are quantised.
const char* torch_dtype(const gguf::File& file) {
  const std::uint32_t type = need_tensor(file, "token_embd.weight").type;
  return type == gguf::kF32 ? "float32" : type == gguf::kF16 ? "float16" : "bfloat16";
}

void put_tokens(const gguf::File& file, json& config) {
  const json& metadata = file.metadata();
  if (metadata.contains("tokenizer.ggml.bos_token_id")) {
    config["bos_token_id"] = metadata["tokenizer.ggml.bos_token_id"];
  }
  json ends = json::array();
  for (const char* key : {"eos", "eot", "eom"}) {
    const std::string name = fmt::format("tokenizer.ggml.{}_token_id", key);
    if (metadata.contains(name)) {
      ends.push_back(metadata[name]);
    }
  }
  if (!ends.empty()) {
    config["eos_token_id"] = ends.size() == 1 ? ends.front() : ends;
  }
}

}  // namespace

std::string config_of_gguf(const gguf::File& file) {
  const Metadata metadata(file);
  require(std::ranges::find(kArchitectures, metadata.architecture()) != kArchitectures.end(),
          "{}: architecture {} is not supported in GGUF; winnow reads {}", file.path().string(),
          in_quotes(metadata.architecture()), fmt::join(kArchitectures, ", "));
  const gguf::Tensor embedding = need_tensor(file, "token_embd.weight");
  require(embedding.shape.size() == 2, "{}: token_embd.weight: expected two dimensions",
          file.path().string());
  const json heads = metadata.need("attention.head_count");
  json config = {{"model_type", metadata.architecture()},
                 {"hidden_size", metadata.need("embedding_length")},
                 {"num_hidden_layers", metadata.need("block_count")},
                 {"intermediate_size", metadata.need("feed_forward_length")},
                 {"num_attention_heads", heads},
                 {"num_key_value_heads", metadata.get("attention.head_count_kv", heads)},
                 {"max_position_embeddings", metadata.need("context_length")},
                 {"rms_norm_eps", metadata.need("attention.layer_norm_rms_epsilon")},
                 {"vocab_size", embedding.shape.front()},
                 {"tie_word_embeddings", !file.tensors().contains("output.weight")},
                 {"torch_dtype", torch_dtype(file)}};
  const json theta = metadata.get("rope.freq_base", 10000.0);
  require(theta.is_number(), "{}: rope.freq_base: expected a number", file.path().string());
  config["rope_theta"] = theta;
  config["rope_scaling"] = read_rope_scaling(file, metadata, theta.get<double>());
  const json* head_dim = metadata.find("attention.key_length");
  head_dim = head_dim != nullptr || metadata.architecture() != "llama"
                 ? head_dim
                 : metadata.find("rope.dimension_count");
  if (head_dim != nullptr) {
    config["head_dim"] = *head_dim;
  } else if (heads.is_number_unsigned() && heads > 0) {
    config["head_dim"] = embedding.shape.back() / heads.get<std::int64_t>();
  }
  put_tokens(file, config);
  return config.dump(2);
}

std::string gguf_name(const std::string& name) {
  using Pair = std::pair<std::string_view, std::string_view>;
  constexpr std::array<Pair, 3> kEnds{{{"model.embed_tokens.weight", "token_embd.weight"},
                                       {"model.norm.weight", "output_norm.weight"},
                                       {"lm_head.weight", "output.weight"}}};
  constexpr std::array<Pair, 11> kParts{{{"input_layernorm", "attn_norm"},
                                         {"post_attention_layernorm", "ffn_norm"},
                                         {"self_attn.q_proj", "attn_q"},
                                         {"self_attn.k_proj", "attn_k"},
                                         {"self_attn.v_proj", "attn_v"},
                                         {"self_attn.o_proj", "attn_output"},
                                         {"self_attn.q_norm", "attn_q_norm"},
                                         {"self_attn.k_norm", "attn_k_norm"},
                                         {"mlp.gate_proj", "ffn_gate"},
                                         {"mlp.up_proj", "ffn_up"},
                                         {"mlp.down_proj", "ffn_down"}}};
  constexpr std::string_view kLayers = "model.layers.";
  for (const Pair& end : kEnds) {
    if (end.first == name) {
      return std::string(end.second);
    }
  }
  const std::size_t dot = name.find('.', kLayers.size());
  const std::size_t last = name.rfind('.');
  if (!name.starts_with(kLayers) || dot == std::string::npos || last <= dot) {
    return "";
  }
  const std::string_view part = std::string_view(name).substr(dot + 1, last - dot - 1);
  const auto* found = std::ranges::find(kParts, part, &Pair::first);
  return found == kParts.end()
             ? ""
             : fmt::format("blk.{}.{}{}", name.substr(kLayers.size(), dot - kLayers.size()),
                           found->second, name.substr(last));
}

bool has_gguf_order(const ModelSpec& spec, const std::string& name) {
  return spec.family == "llama" && (name.find(".self_attn.q_proj.") != std::string::npos ||
                                    name.find(".self_attn.k_proj.") != std::string::npos);
}

quantized::QuantizedMatrix gguf_matrix(const gguf::Tensor& tensor, const Shape& shape,
                                       int permuted_heads) {
  quantized::QuantizedMatrix matrix;
  matrix.rows = shape.front();
  matrix.cols = shape.size() == 1 ? 1 : shape.back();
  matrix.stored_bytes = tensor.bytes.size();
  const gguf::BlockFormat format = gguf::block_format(tensor.type, "");
  const std::int64_t head = permuted_heads > 0 ? matrix.rows / permuted_heads : 0;
  // Channel c of a head and its partner c + head / 2 lie side by side.
  const auto stored_row = [head](std::int64_t row) {
    if (head == 0) {
      return row;
    }
    const std::int64_t channel = row % head;
    return row - channel + channel % (head / 2) * 2 + channel / (head / 2);
  };
  const std::int64_t blocks = matrix.cols / format.elements;
  matrix.codes = [=, data = tensor.bytes.data()](std::int64_t begin, std::int64_t end, float* out) {
    for (std::int64_t row = begin; row < end; ++row) {
      const std::byte* at = data + stored_row(row) * blocks * format.bytes;
      for (std::int64_t i = 0; i < blocks; ++i, at += format.bytes, out += format.elements) {
        format.decode(at, out);
      }
    }
  };
  return matrix;
}

}  // namespace winnow::model
