#include "model/gguf_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "checkpoint/gguf/block_formats.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "model/gguf_metadata.h"

namespace winnow::model {
namespace {

using detail::Metadata;
using detail::need_tensor;
using nlohmann::json;

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

/// The divisor of a frequency of Llama 3.1's RoPE.
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

/// ggml stores the divisors of frequencies. Only divisors that follow from Llama 3.1's rule are
/// supported.
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
  metadata.copy("rope.scaling.original_context_length", scaling,
                "original_max_position_embeddings");
  metadata.copy("rope.scaling.yarn_beta_fast", scaling, "beta_fast");
  metadata.copy("rope.scaling.yarn_beta_slow", scaling, "beta_slow");
  return scaling;
}

/// The type of the embeddings; bf16 if they are quantised.
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

std::string gguf_architecture(const gguf::File& file) {
  return text_of(file, "general.architecture", "");
}

int predicting_layers(const gguf::File& file) {
  const json count = Metadata(file).get("nextn_predict_layers", 0);
  require(count.is_number_unsigned() || count == 0,
          "{}: nextn_predict_layers: expected a number of layers, got {}", file.path().string(),
          described(count));
  return count.get<int>();
}

std::string config_of_gguf(const gguf::File& file) {
  const Metadata metadata(file);
  const auto* const architecture = detail::find_gguf_architecture(metadata.architecture());
  require(
      architecture != nullptr,
      "{}: architecture {} is not supported in GGUF; winnow inspect --architectures lists those "
      "that are",
      file.path().string(), in_quotes(metadata.architecture()));
  const gguf::Tensor embedding = need_tensor(file, "token_embd.weight");
  require(embedding.shape.size() == 2, "{}: token_embd.weight: expected two dimensions",
          file.path().string());
  const json heads = metadata.need("attention.head_count");
  json config = {{"model_type", architecture->model_type},
                 {"hidden_size", metadata.need("embedding_length")},
                 {"num_hidden_layers", metadata.need("block_count")},
                 {"intermediate_size", metadata.get("feed_forward_length", nullptr)},
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
  if (architecture->add != nullptr) {
    architecture->add(metadata, config);
  }
  put_tokens(file, config);
  return json_text(config, 2);
}

}  // namespace winnow::model
