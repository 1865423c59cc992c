#include "model/gguf_model.h"

#include <algorithm>
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
  /// Like need(), of a number.
  [[nodiscard]] double number(const std::string& key) const {
    const json value = need(key);
    require(value.is_number(), "{}: {}.{}: expected a number, got {}", file_.path().string(),
            architecture_, key, described(value));
    return value.get<double>();
  }
  [[nodiscard]] const gguf::File& file() const { return file_; }
  /// Puts what the file says under `key` into config.json's `name`; nothing where it says nothing.
  void copy(const std::string& key, json& config, const char* name) const {
    if (find(key) != nullptr) {
      config[name] = need(key);
    }
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
  metadata.copy("rope.scaling.original_context_length", scaling,
                "original_max_position_embeddings");
  metadata.copy("rope.scaling.yarn_beta_fast", scaling, "beta_fast");
  metadata.copy("rope.scaling.yarn_beta_slow", scaling, "beta_slow");
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

/// The values of a vector.
std::vector<float> read_floats(const gguf::File& file, const std::string& name) {
  const gguf::Tensor& tensor = need_tensor(file, name);
  require(tensor.type == gguf::kF32, "{}: {}: expected F32", file.path().string(), name);
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(float));
  return values;
}

// What architectures have besides: keys that llama.cpp's converter leaves out are constants of its
// own code, which the comments name.

void put_experts(const Metadata& metadata, json& config, const char* count) {
  config[count] = metadata.need("expert_count");
  config["num_experts_per_tok"] = metadata.need("expert_used_count");
}

/// Files of Mixtral's name Llama's architecture.
void add_llama(const Metadata& metadata, json& config) {
  if (metadata.find("expert_count") != nullptr && metadata.number("expert_count") > 0) {
    config["model_type"] = "mixtral";
    put_experts(metadata, config, "num_local_experts");
  }
}

/// llama.cpp normalises what Qwen 3's router chose, and not what Qwen 2's did.
void add_qwen_experts(const Metadata& metadata, json& config) {
  put_experts(metadata, config, "num_experts");
  config["norm_topk_prob"] = metadata.architecture() != "qwen2moe";
  config["moe_intermediate_size"] =
      metadata.get("expert_feed_forward_length", config["intermediate_size"]);
  metadata.copy("expert_shared_feed_forward_length", config, "shared_expert_intermediate_size");
}

/// Of the 27B models, which llama.cpp knows by their layers, scores are divided by the square root
/// of another width than the heads have.
void add_gemma_scale(const Metadata& metadata, json& config, int layers_of_27b) {
  const bool is_27b = metadata.number("block_count") == layers_of_27b;
  config["query_pre_attn_scalar"] =
      is_27b ? metadata.number("embedding_length") / metadata.number("attention.head_count")
             : metadata.number("attention.key_length");
}

void add_gemma2(const Metadata& metadata, json& config) {
  add_gemma_scale(metadata, config, 46);
  metadata.copy("attn_logit_softcapping", config, "attn_logit_softcapping");
  metadata.copy("final_logit_softcapping", config, "final_logit_softcapping");
  metadata.copy("attention.sliding_window", config, "sliding_window");
}

/// Every sixth layer is a full one, the others have a base of 10,000.
void add_gemma3(const Metadata& metadata, json& config) {
  add_gemma_scale(metadata, config, 62);
  metadata.copy("final_logit_softcapping", config, "final_logit_softcapping");
  config["sliding_window"] = metadata.get("attention.sliding_window", nullptr);
  config["sliding_window_pattern"] = config["sliding_window"].is_null()
                                         ? json(1)
                                         : metadata.get("attention.sliding_window_pattern", 6);
  config["rope_local_base_freq"] = metadata.get("rope.freq_base_swa", 10000.0);
}

void add_granite(const Metadata& metadata, json& config) {
  metadata.copy("embedding_scale", config, "embedding_multiplier");
  metadata.copy("residual_scale", config, "residual_multiplier");
  metadata.copy("logit_scale", config, "logits_scaling");
  config["attention_multiplier"] =
      metadata.get("attention.scale", 1.0 / std::sqrt(config["head_dim"].get<double>()));
}

/// A pattern says true of the layers that slide.
void put_sliding_layers(const Metadata& metadata, json& config) {
  if (const json* pattern = metadata.find("attention.sliding_window_pattern")) {
    json types = json::array();
    for (const json& slides : pattern->is_array() ? *pattern : json::array()) {
      types.push_back(slides == true ? "sliding_attention" : "full_attention");
    }
    config["layer_types"] = types;
  }
}

/// OLMo 3 is OLMo 2 with a window.
void add_olmo2(const Metadata& metadata, json& config) {
  const json window = metadata.get("attention.sliding_window", 0);
  if (window != 0) {
    config["model_type"] = "olmo3";
    config["sliding_window"] = window;
    put_sliding_layers(metadata, config);
  }
}

/// In the model of 64 layers three of four slide; llama.cpp gives others no window.
void add_exaone4(const Metadata& metadata, json& config) {
  config["sliding_window"] = nullptr;
  if (metadata.number("block_count") == 64) {
    config["sliding_window"] = metadata.get("attention.sliding_window", 4096);
    put_sliding_layers(metadata, config);
  }
}

/// Ministral 3, or with neither experts nor growing queries Mistral Small 3, which is Llama's.
/// llama.cpp takes mscale for 1.
void add_mistral3(const Metadata& metadata, json& config) {
  require(metadata.get("expert_count", 0) == 0, "{}: mistral3 with experts is not supported",
          metadata.file().path().string());
  if (metadata.find("attention.temperature_scale") == nullptr) {
    config["model_type"] = "llama";
    return;
  }
  require(config["rope_scaling"].is_object(), "{}: mistral3.rope.scaling.type is missing",
          metadata.file().path().string());
  json rope = config["rope_scaling"];
  rope["rope_theta"] = config["rope_theta"];
  rope["llama_4_scaling_beta"] = metadata.need("attention.temperature_scale");
  rope["mscale"] = 1.0;
  rope["mscale_all_dim"] = metadata.get("rope.scaling.yarn_log_multiplier", 0.0);
  config["rope_parameters"] = rope;
  config.erase("rope_scaling");
  config.erase("rope_theta");
}

void add_gpt_oss(const Metadata& metadata, json& config) {
  put_experts(metadata, config, "num_local_experts");
  metadata.copy("expert_feed_forward_length", config, "intermediate_size");
  metadata.copy("attention.sliding_window", config, "sliding_window");
  if (config["rope_scaling"].is_object()) {
    config["rope_scaling"]["truncate"] = false;
  }
}

/// A window of 0 is none. The number of channels that are rotated is not that of a head.
void add_phi3(const Metadata& metadata, json& config) {
  const json window = metadata.get("attention.sliding_window", 0);
  config["sliding_window"] = window == 0 ? json(nullptr) : window;
  const auto head = config["head_dim"].get<double>();
  if (metadata.find("rope.dimension_count") != nullptr) {
    // A little more, as the share of a head is cut off to a number of channels.
    config["partial_rotary_factor"] =
        std::min(1.0, (metadata.number("rope.dimension_count") + 1e-6) / head);
  }
  metadata.copy("rope.scaling.original_context_length", config, "original_max_position_embeddings");
  if (metadata.file().tensors().contains("rope_factors_long.weight")) {
    config["rope_scaling"] = {
        {"rope_type", "longrope"},
        {"long_factor", read_floats(metadata.file(), "rope_factors_long.weight")},
        {"short_factor", read_floats(metadata.file(), "rope_factors_short.weight")}};
  }
}

/// What llama.cpp calls a model, and transformers.
struct Architecture {
  std::string_view name;
  const char* model_type;
  void (*add)(const Metadata& metadata, json& config) = nullptr;
};

constexpr std::array<Architecture, 20> kArchitectures{{
    {"arcee", "arcee"},
    {"exaone4", "exaone4", add_exaone4},
    {"gemma", "gemma"},
    {"gemma2", "gemma2", add_gemma2},
    {"gemma3", "gemma3_text", add_gemma3},
    {"gpt-oss", "gpt_oss", add_gpt_oss},
    {"granite", "granite", add_granite},
    {"llama", "llama", add_llama},
    {"mistral3", "ministral3", add_mistral3},
    {"olmo2", "olmo2", add_olmo2},
    {"phi3", "phi3", add_phi3},
    {"qwen2", "qwen2"},
    {"qwen2moe", "qwen2_moe", add_qwen_experts},
    {"qwen2vl", "qwen2"},
    {"qwen3", "qwen3"},
    {"qwen3moe", "qwen3_moe", add_qwen_experts},
    {"qwen3vl", "qwen3"},
    {"qwen3vlmoe", "qwen3_moe", add_qwen_experts},
    {"seed_oss", "seed_oss"},
    {"smollm3", "smollm3"},
}};

std::string known_gguf_architectures() {
  std::string names;
  for (const Architecture& architecture : kArchitectures) {
    names.append(names.empty() ? "" : ", ").append(architecture.name);
  }
  return names;
}

}  // namespace

std::string config_of_gguf(const gguf::File& file) {
  const Metadata metadata(file);
  const auto* const architecture =
      std::ranges::find(kArchitectures, metadata.architecture(), &Architecture::name);
  require(architecture != kArchitectures.end(),
          "{}: architecture {} is not supported in GGUF; winnow reads {}", file.path().string(),
          in_quotes(metadata.architecture()), known_gguf_architectures());
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
  return config.dump(2);
}

}  // namespace winnow::model
