#include "model/families/mamba_layers.h"

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace winnow::model::detail {
namespace {

constexpr const char* kLimits = "time_step_limit";

// Python writes an infinity as a bare word, which winnow's JSON parser turns into a string;
// transformers writes {"__float__": "Infinity"}.
float read_limit(const JsonObject& config, const nlohmann::json& limit) {
  const bool tagged = limit.is_object() && limit.contains("__float__");
  if ((tagged ? limit.at("__float__") : limit) == "Infinity") {
    return std::numeric_limits<float>::infinity();
  }
  if (!limit.is_number()) {
    config.reject(kLimits, "two numbers");
  }
  return limit.get<float>();
}

ops::RateLimits read_limits(const JsonObject& config) {
  const nlohmann::json* limits = config.find(kLimits);
  if (limits == nullptr) {
    return {};
  }
  if (!limits->is_array() || limits->size() != 2) {
    config.reject(kLimits, "two numbers");
  }
  const ops::RateLimits result{read_limit(config, limits->front()),
                               read_limit(config, limits->back())};
  require(result.lowest >= 0.0F && result.lowest <= result.highest,
          "{}: {}: expected a number from 0 on and one that is not less, got {} and {}",
          config.where(), kLimits, result.lowest, result.highest);
  return result;
}

// "auto": the width divided by the number of heads.
int read_head_dim(const JsonObject& config, int width, int heads) {
  constexpr const char* kKey = "mamba_d_head";
  const nlohmann::json* dim = config.find(kKey);
  const bool automatic = dim == nullptr || *dim == "auto";
  const int read =
      automatic ? std::max(1, width / heads) : config.integer(kKey, 1, kMaxIntermediate);
  require(
      static_cast<std::int64_t>(read) * heads == width,
      "{}: expected mamba_n_heads times mamba_d_head to be the width of the state space, got {} "
      "times {} and {}",
      config.where(), heads, read, width);
  return read;
}

}  // namespace

void require_moderate(const JsonObject& config, const RecurrentSpec& mixer) {
  const ops::DeltaRuleShape& heads = mixer.heads;
  const double width = 1.0 * heads.value_heads * heads.value_dim;
  const double keys = 1.0 * heads.key_heads * heads.key_dim;
  const double floats = width * heads.key_dim + mixer.taps * (width + 2.0 * keys);
  require(floats < 0x1p30,
          "{}: a recurrent layer keeps {:.0f} numbers of a sequence, expected less than 2^30",
          config.where(), floats);
}

RecurrentSpec read_mamba(const JsonObject& config, int hidden, std::optional<int> own_width) {
  require(read_activation(config, "hidden_act") == ops::Activation::silu,
          "{}: hidden_act: expected \"silu\", which the convolutions of recurrent layers take too",
          config.where());
  require(!config.boolean("mamba_proj_bias", false),
          "{}: mamba_proj_bias: true is not supported for this family", config.where());
  const int width = own_width ? *own_width : config.integer("mamba_expand", 1, 1024, 2) * hidden;
  RecurrentSpec mixer;
  mixer.kind = RecurrentSpec::Kind::state_space;
  const int heads = config.integer("mamba_n_heads", 1, kMaxHeads, 128);
  mixer.heads = {.key_heads = config.integer("mamba_n_groups", 1, kMaxHeads, 1),
                 .value_heads = heads,
                 .key_dim = config.integer("mamba_d_state", 1, kMaxHeadDim, 256),
                 .value_dim = read_head_dim(config, width, heads),
                 .corrects = false};
  require(heads % mixer.heads.key_heads == 0,
          "{}: expected mamba_n_heads to be a multiple of mamba_n_groups, got {} and {}",
          config.where(), heads, mixer.heads.key_heads);
  mixer.taps = config.integer("mamba_d_conv", 1, 1024, 4);
  mixer.conv_bias = config.boolean("mamba_conv_bias", true);
  mixer.norm_groups = mixer.heads.key_heads;
  mixer.rates = read_limits(config);
  require_moderate(config, mixer);
  return mixer;
}

void set_mamba_layers(const JsonObject& config, ModelSpec& spec,
                      const std::vector<bool>& recurrent) {
  const auto count = std::ranges::count(recurrent, true);
  require(count < spec.layer_count(), "{}: no layer attends, expected one at least",
          config.where());
  if (count == 0) {
    return;
  }
  const RecurrentSpec mixer = read_mamba(config, spec.hidden);
  for (std::size_t i = 0; i < recurrent.size(); ++i) {
    if (recurrent[i]) {
      spec.layers[i].mixer = mixer;
    }
  }
  spec.names.renamed.emplace_back("linear_attn.", "mamba.");
}

}  // namespace winnow::model::detail
