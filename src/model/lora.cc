#include "model/lora.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/note.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"

namespace winnow::model {
namespace {

using nlohmann::json;

// The scaling of an adapter.
struct Scaling {
  double alpha = 1.0;
  bool by_root = false;  // rsLoRA: by the root of the rank

  [[nodiscard]] float of(std::int64_t rank) const {
    const auto r = static_cast<double>(rank);
    return static_cast<float>(alpha / (by_root ? std::sqrt(r) : r));
  }
};

bool asks_for(const json& config, const char* key, const json& neutral) {
  const json value = config.value(key, json());
  return !value.is_null() && value != neutral && !(value.is_structured() && value.empty());
}

struct AdapterConfig {
  Scaling scaling;
  std::string base_model;
};

AdapterConfig read_config(const std::filesystem::path& path) {
  const json config = parse_json(read_text_file(path), path.string());
  require(config.is_object() && config.value("peft_type", json()) == "LORA",
          "{}: peft_type is not \"LORA\"", path.string());
  const std::array<std::pair<const char*, json>, 7> refused{{{"use_dora", false},
                                                             {"use_qalora", false},
                                                             {"bias", "none"},
                                                             {"lora_bias", false},
                                                             {"modules_to_save", nullptr},
                                                             {"alpha_pattern", nullptr},
                                                             {"fan_in_fan_out", false}}};
  for (const auto& [key, neutral] : refused) {
    require(!asks_for(config, key, neutral), "{}: {} is {}, which winnow does not compute",
            path.string(), key, json_text(config.value(key, json())));
  }
  const json alpha = config.value("lora_alpha", json());
  require(alpha.is_number(), "{}: lora_alpha is {}, expected a number", path.string(),
          described(alpha));
  const json base = config.value("base_model_name_or_path", json());
  return {.scaling = {alpha.get<double>(), config.value("use_rslora", json()) == true},
          .base_model = base.is_string() ? base.get<std::string>() : ""};
}

struct Place {
  int layer = -1;
  std::string_view module;  // self_attn.q_proj
  bool is_up = false;       // lora_B
};

// The rest of a name after "layers." of the text part; empty if the name belongs to another part.
// The prefixes of the text part are those of text_part() and the plain ones.
std::string_view behind_layers(std::string_view name) {
  for (const std::string_view prefix : {"model.", "model.language_model.", "language_model.model.",
                                        "language_model.", "model.text_model.", ""}) {
    const std::string beginning = fmt::format("base_model.model.{}layers.", prefix);
    if (name.starts_with(beginning)) {
      return name.substr(beginning.size());
    }
  }
  return {};
}

// Whether a name belongs to a part that winnow does not run, with layers of its own.
bool is_of_other_part(std::string_view name) {
  constexpr std::array<std::string_view, 5> kParts{".vision_tower.", ".visual.", ".vision_model.",
                                                   ".multi_modal_projector.", ".audio_tower."};
  return std::ranges::any_of(
      kParts, [name](std::string_view part) { return name.find(part) != std::string_view::npos; });
}

// base_model.model.model.layers.3.self_attn.q_proj.lora_A.weight; layer -1 for any other name.
Place place_of(std::string_view name) {
  const bool down = name.ends_with(".lora_A.weight");
  const bool up = name.ends_with(".lora_B.weight");
  const std::string_view rest = behind_layers(name);
  if (rest.empty() || !(down || up)) {
    return {};
  }
  Place place;
  place.is_up = up;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), place.layer);
  const auto digits = static_cast<std::size_t>(end - rest.data());
  constexpr std::size_t kEnding = std::string_view(".lora_A.weight").size();
  if (error != std::errc() || digits + 1 + kEnding >= rest.size()) {
    return {};
  }
  place.module = rest.substr(digits + 1, rest.size() - digits - 1 - kEnding);
  return place;
}

// The member that a module's name stands for, and the module's shape.
struct Target {
  std::optional<LoraProduct> LoraLayer::*member = nullptr;
  std::int64_t out = 0;
  std::int64_t in = 0;
};

Target target_of(const ModelSpec& spec, const Place& place) {
  const LayerSpec& layer = spec.layer(place.layer);
  const AttentionSpec* attention = layer.attention();
  if (attention != nullptr && !attention->output_gate && !attention->latent &&
      !spec.names.joins_qkv) {
    const std::array<std::pair<std::string_view, Target>, 4> projections{{
        {"self_attn.q_proj", {&LoraLayer::query, attention->query_width(), spec.hidden}},
        {"self_attn.k_proj", {&LoraLayer::key, attention->key_width(), spec.hidden}},
        {"self_attn.v_proj", {&LoraLayer::value, attention->value_width(), spec.hidden}},
        {"self_attn.o_proj", {&LoraLayer::output, spec.hidden, attention->output_width()}},
    }};
    for (const auto& [name, target] : projections) {
      const bool is_there = (target.member != &LoraLayer::key || attention->projects_keys()) &&
                            (target.member != &LoraLayer::value || attention->projects_values());
      if (name == place.module && is_there) {
        return target;
      }
    }
  }
  const int inner = layer.feed_forward.intermediate;
  const std::array<std::pair<std::string_view, Target>, 3> networks{{
      {"mlp.gate_proj", {&LoraLayer::gate, inner, spec.hidden}},
      {"mlp.up_proj", {&LoraLayer::up, inner, spec.hidden}},
      {"mlp.down_proj", {&LoraLayer::down, spec.hidden, inner}},
  }};
  for (const auto& [name, target] : networks) {
    const bool is_there = !layer.feed_forward.experts && !spec.names.joins_gate_up &&
                          (layer.feed_forward.gated || target.member != &LoraLayer::gate);
    if (name == place.module && is_there) {
      return target;
    }
  }
  return {};
}

}  // namespace

std::shared_ptr<const Lora> Lora::load(const std::filesystem::path& directory,
                                       const ModelSpec& spec) {
  AdapterConfig config = read_config(directory / "adapter_config.json");
  const std::filesystem::path path = directory / "adapter_model.safetensors";
  require(std::filesystem::exists(path), "{}: there is no adapter_model.safetensors",
          directory.string());
  const std::shared_ptr<Lora> lora(new Lora(std::move(config.base_model), SafetensorsFile(path)));
  lora->layers_.resize(static_cast<std::size_t>(spec.layer_count()));
  int skipped = 0;
  for (const auto& [name, tensor] : lora->file_.tensors()) {
    if (is_of_other_part(name)) {
      ++skipped;
      continue;
    }
    const Place place = place_of(name);
    const bool is_inside = place.layer >= 0 && place.layer < spec.layer_count();
    const Target target = is_inside ? target_of(spec, place) : Target{};
    require(target.member != nullptr, "{}: tensor {} has no place in this model", path.string(),
            in_quotes(name));
    require(tensor.shape.size() == 2 &&
                tensor.shape[place.is_up ? 0 : 1] == (place.is_up ? target.out : target.in),
            "{}: tensor {} has shape [{}], expected {} {}", path.string(), in_quotes(name),
            fmt::join(tensor.shape, ", "), place.is_up ? target.out : target.in,
            place.is_up ? "rows" : "columns");
    auto& product = lora->layers_[static_cast<std::size_t>(place.layer)].*target.member;
    if (!product) {
      product.emplace();
    }
    ops::Weight& half = place.is_up ? product->up : product->down;
    require(half.data == nullptr, "{}: tensor {} has the place of another tensor", path.string(),
            in_quotes(name));
    half = ops::weight_view(tensor);
    product->scale = config.scaling.of(tensor.shape[place.is_up ? 1 : 0]);
  }
  if (skipped > 0) {
    note(fmt::format("{}: skips {} tensors of a vision or audio part, which winnow does not run",
                     path.string(), skipped));
  }
  for (const LoraLayer& layer : lora->layers_) {
    for (const auto* product : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate,
                                &layer.up, &layer.down}) {
      require(!*product || (*product)->up.cols == (*product)->down.rows,
              "{}: a lora_A and its lora_B are not of one rank", path.string());
    }
  }
  return lora;
}

}  // namespace winnow::model
