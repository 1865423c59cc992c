#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "model/config_fields.h"
#include "model/rope_frequencies.h"

namespace winnow::model::detail {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;
constexpr const char* kScaling = "rope_scaling";
constexpr const char* kParameters = "rope_parameters";
constexpr const char* kOriginal = "original_max_position_embeddings";
constexpr const char* kShare = "partial_rotary_factor";

/// Reads the RoPE of one kind of layers from the keys inside rope_scaling or rope_parameters (empty
/// if there are none) and from the keys outside them.
class RopeReader {
 public:
  RopeReader(const JsonObject& config, const JsonObject& inside, const HeadSizes& heads,
             const RopeDefaults& defaults)
      : config_(config),
        inside_(inside),
        heads_(heads),
        defaults_(defaults),
        type_(inside.text("rope_type", inside.text("type", "default"))),
        theta_(read_theta()) {
    require(!heads.yarn || type_ == "default",
            "{}: {} (--rope-yarn): the model's RoPE is of type {}, expected a plain one",
            config.where(), kYarnKey, in_quotes(type_));
    require(!heads.yarn || *heads.yarn * heads.max_positions <= kMaxPositions,
            "{}: {} (--rope-yarn): {} times {} positions are more than {}", config.where(),
            kYarnKey, heads.yarn.value_or(0.0), heads.max_positions, kMaxPositions);
  }

  [[nodiscard]] RopeSpec read() const {
    RopeSpec rope = frequencies();
    rope.interleaved = defaults_.interleaved;
    if (defaults_.mscales && type_ != "default") {
      const char* key = positions() > original_context() ? "long_mscale" : "short_mscale";
      rope.attention_factor =
          static_cast<float>(inside_.number(key, 0.0, kMaxFactor, rope.attention_factor));
    }
    return rope;
  }

  /// The positions of the description. LongRoPE is set up for the original context unless
  /// config.json asks for a longer one.
  [[nodiscard]] int positions() const {
    if (heads_.context) {
      const bool grows = is_longrope() || (type_ == "dynamic" && !has_fixed_base());
      require(grows || *heads_.context <= stretched_positions(),
              "{}: {} (--rope-context): {} tokens are more than the model's {} positions",
              config_.where(), kContextKey, *heads_.context, stretched_positions());
      return *heads_.context;
    }
    return is_longrope() ? std::min(original_context(), heads_.max_positions)
                         : stretched_positions();
  }

 private:
  [[nodiscard]] int stretched_positions() const {
    return static_cast<int>(heads_.yarn.value_or(1.0) * heads_.max_positions);
  }

  [[nodiscard]] RopeSpec frequencies() const {
    if (heads_.yarn) {
      return yarn(*heads_.yarn, heads_.max_positions);
    }
    if (type_ == "default") {
      return rounded(base());
    }
    if (type_ == "linear") {
      return rounded(divided(base(), inside_.number("factor", 1.0, kMaxFactor)));
    }
    if (type_ == "proportional") {
      return proportional();
    }
    if (type_ == "llama3") {
      return llama3();
    }
    if (is_longrope()) {
      return longrope();
    }
    if (type_ == "yarn") {
      return yarn(factor(), original_context());
    }
    if (type_ == "dynamic") {
      return dynamic();
    }
    fail(
        "{}: RoPE type {} is not supported; winnow knows default, linear, dynamic, yarn, longrope, "
        "llama3 and proportional",
        inside_.where(), in_quotes(type_));
  }

  /// Keys inside rope_scaling take precedence over keys outside it.
  [[nodiscard]] double read_theta() const {
    const double beside =
        defaults_.theta_key == nullptr
            ? defaults_.theta
            : config_.number(defaults_.theta_key, 1.0, kMaxTheta, defaults_.theta);
    return inside_.number("rope_theta", 1.0, kMaxTheta, beside);
  }
  [[nodiscard]] double share() const {
    const char* key = defaults_.channels_key;
    const double absent = key != nullptr && config_.has(key)
                              ? config_.integer(key, 0, heads_.head_dim) * 1.0 / heads_.head_dim
                              : defaults_.share;
    const double beside = config_.number(kShare, 0.0, 1.0, absent);
    return inside_.number(kShare, 0.0, 1.0, beside);
  }
  /// Phi-3's files have used other names for it.
  [[nodiscard]] bool is_longrope() const {
    return type_ == "longrope" || (defaults_.phi_names && (type_ == "su" || type_ == "yarn"));
  }

  /// The number of rotated channels, rounded down as in transformers. For families without partial
  /// RoPE, transformers ignores the share with plain RoPE and fails with any other.
  [[nodiscard]] int channels() const {
    if (!defaults_.partial) {
      require(type_ == "default" || share() == 1.0,
              "{}: {} {} beside RoPE type {} is not supported for this family", config_.where(),
              kShare, share(), in_quotes(type_));
      return heads_.head_dim;
    }
    const int channels = static_cast<int>(share() * heads_.head_dim);
    require(channels >= 2 && channels % 2 == 0,
            "{}: {} {} of a head_dim of {} rotates {} channels, expected an even number of at "
            "least 2",
            config_.where(), kShare, share(), heads_.head_dim, channels);
    return channels;
  }

  [[nodiscard]] Frequencies base() const { return base_frequencies(theta_, channels()); }

  static Frequencies divided(Frequencies frequencies, double by) {
    std::ranges::transform(frequencies, frequencies.begin(), [by](double f) { return f / by; });
    return frequencies;
  }

  static RopeSpec rounded(const Frequencies& frequencies, double attention_factor = 1.0) {
    return {.frequencies = {frequencies.begin(), frequencies.end()},
            .attention_factor = static_cast<float>(attention_factor)};
  }

  /// The context before extension. As in transformers, the key outside takes precedence over the
  /// key inside.
  [[nodiscard]] int original_context() const {
    const int absent = defaults_.original_context > 0
                           ? defaults_.original_context
                           : inside_.integer(kOriginal, 1, kMaxPositions, heads_.max_positions);
    return config_.integer(kOriginal, 1, kMaxPositions, absent);
  }
  /// The factor of the extension.
  [[nodiscard]] double factor() const {
    return inside_.number("factor", 1e-3, kMaxFactor,
                          static_cast<double>(heads_.max_positions) / original_context());
  }

  /// All channels form planes, and a share of the planes is rotated.
  [[nodiscard]] RopeSpec proportional() const {
    Frequencies frequencies = divided(base_frequencies(theta_, heads_.head_dim),
                                      inside_.number("factor", 1e-3, kMaxFactor, 1.0));
    const auto turning = static_cast<std::size_t>(share() * heads_.head_dim / 2);
    std::fill(frequencies.begin() + static_cast<std::ptrdiff_t>(turning), frequencies.end(), 0.0);
    return rounded(frequencies);
  }

  [[nodiscard]] RopeSpec llama3() const {
    const Llama3Scaling scaling{
        .factor = inside_.number("factor", 1.0, kMaxFactor),
        .low_freq_factor = inside_.number("low_freq_factor", 1e-3, kMaxFactor),
        .high_freq_factor = inside_.number("high_freq_factor", 1e-3, kMaxFactor),
        .original_context = original_context()};
    // The blend between the two divides by their difference.
    require(scaling.low_freq_factor < scaling.high_freq_factor,
            "{}: expected low_freq_factor below high_freq_factor, got {} and {}", inside_.where(),
            scaling.low_freq_factor, scaling.high_freq_factor);
    return rounded(llama3_frequencies(base(), scaling));
  }

  [[nodiscard]] RopeSpec yarn(double factor, int original_context) const {
    require(theta_ > 1.0, "{}: rope_theta 1 beside RoPE type \"yarn\": expected more",
            config_.where());
    const auto or_default = [&](const char* key, double absent) {  // 0 means absent
      const double value = inside_.number(key, 0.0, kMaxFactor, absent);
      return value == 0.0 ? absent : value;
    };
    const YarnScaling scaling{.theta = theta_,
                              .factor = factor,
                              .fast = or_default("beta_fast", 32.0),
                              .slow = or_default("beta_slow", 1.0),
                              .original_context = original_context,
                              .truncate = inside_.boolean("truncate", true)};
    return rounded(yarn_frequencies(base(), scaling), yarn_attention_factor(scaling.factor));
  }

  [[nodiscard]] double yarn_attention_factor(double factor) const {
    const auto of = [factor](double mscale) {
      return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
    };
    const double above = inside_.number("mscale", -kMaxFactor, kMaxFactor, 0.0);
    const double below = inside_.number("mscale_all_dim", -kMaxFactor, kMaxFactor, 0.0);
    const double inferred = above != 0.0 && below != 0.0 ? of(above) / of(below) : of(1.0);
    return inside_.number("attention_factor", 0.0, kMaxFactor, inferred);
  }

  /// A divisor for each plane: the short ones up to the original context, the long ones for longer
  /// texts.
  [[nodiscard]] RopeSpec longrope() const {
    const int original = original_context();
    Frequencies frequencies = base();
    const auto divisors =
        plane_divisors(positions() > original ? "long_factor" : "short_factor", frequencies.size());
    std::ranges::transform(frequencies, divisors, frequencies.begin(), std::divides<>());
    const double factor = this->factor();
    const double inferred =
        factor <= 1.0 ? 1.0 : std::sqrt(1.0 + std::log(factor) / std::log(double(original)));
    return rounded(frequencies, inside_.number("attention_factor", 0.0, kMaxFactor, inferred));
  }

  [[nodiscard]] std::vector<double> plane_divisors(const char* key, std::size_t count) const {
    const nlohmann::json* list = inside_.find(key);
    const auto is_divisor = [](const nlohmann::json& value) {
      return value.is_number() && value.get<double>() > 0.0;
    };
    if (list == nullptr || !list->is_array() || list->size() != count ||
        !std::all_of(list->begin(), list->end(), is_divisor)) {
      inside_.reject(key, fmt::format("a list of {} numbers above 0", count));
    }
    return list->get<std::vector<double>>();
  }

  [[nodiscard]] bool has_fixed_base() const {
    return defaults_.fixed_alpha && inside_.has("alpha") && inside_.number("alpha", 0.0, 1e6) > 0.0;
  }
  /// The plain base up to the context of training, a larger one for longer texts.
  [[nodiscard]] RopeSpec dynamic() const {
    if (has_fixed_base()) {
      const double alpha = inside_.number("alpha", 1e-6, kMaxFactor);
      const double stretch = std::pow(alpha, channels() / (channels() - 2.0));
      return rounded(base_frequencies(theta_ * stretch, channels()));
    }
    const double factor = inside_.number("factor", 1.0, kMaxFactor);
    if (positions() <= heads_.max_positions) {
      return rounded(base());
    }
    const double theta =
        dynamic_theta(theta_, channels(), factor, heads_.max_positions, positions());
    return rounded(base_frequencies(theta, channels()));
  }

  const JsonObject& config_;
  const JsonObject& inside_;
  HeadSizes heads_;
  RopeDefaults defaults_;
  std::string type_;
  double theta_;
};

constexpr std::array kRopeLayerTypes{"full_attention", "sliding_attention"};

bool is_by_layer_type(const JsonObject& parameters) {
  return std::ranges::any_of(kRopeLayerTypes,
                             [&](const char* type) { return parameters.has(type); });
}

/// rope_parameters if it has values per layer type; nullopt if it is absent.
std::optional<JsonObject> parameters_by_layer_type(const JsonObject& config) {
  if (!config.has(kParameters)) {
    return std::nullopt;
  }
  JsonObject parameters = config.object(kParameters);
  require(is_by_layer_type(parameters),
          "{}: expected \"full_attention\" and \"sliding_attention\", for each the RoPE of such "
          "layers",
          parameters.where());
  return parameters;
}

ReadRope read_one(const JsonObject& config, const nlohmann::json& inside, const std::string& where,
                  const HeadSizes& heads, const RopeDefaults& defaults) {
  const JsonObject object(inside, where);
  const RopeReader reader(config, object, heads, defaults);
  return {reader.read(), reader.positions()};
}

}  // namespace

HeadSizes read_head_sizes(const JsonObject& config, int head_dim, int max_positions) {
  HeadSizes heads{head_dim, max_positions, {}, {}};
  if (config.has(kContextKey)) {
    heads.context = config.integer(kContextKey, 1, kMaxPositions);
  }
  if (config.has(kYarnKey)) {
    heads.yarn = config.number(kYarnKey, 1.0, kMaxFactor);
  }
  return heads;
}

ReadRope read_rope(const JsonObject& config, const HeadSizes& heads, const RopeDefaults& defaults) {
  // As in transformers, the old key takes precedence over the new one.
  const char* key = config.has(kScaling) ? kScaling : kParameters;
  if (!config.has(key)) {
    return read_one(config, json_from<nlohmann::json>(defaults.parameters), config.where(), heads,
                    defaults);
  }
  const JsonObject inside = config.object(key);
  require(!is_by_layer_type(inside),
          "{}: RoPE by layer type is not supported for this family, expected one for all layers",
          inside.where());
  return read_one(config, *config.find(key), inside.where(), heads, defaults);
}

LayerRopes read_layer_ropes(const JsonObject& config, const HeadSizes& heads,
                            const RopeDefaults& full, const RopeDefaults& sliding) {
  const std::optional<JsonObject> parameters = parameters_by_layer_type(config);
  const auto inside = [&](const char* type, const RopeDefaults& defaults) {
    if (!parameters) {
      return json_from<nlohmann::json>(defaults.parameters);
    }
    return parameters->has(type) ? *parameters->find(type) : nlohmann::json::object();
  };
  nlohmann::json of_full = inside("full_attention", full);
  if (config.has(kScaling)) {
    (void)config.object(kScaling);
    of_full.update(*config.find(kScaling));
  }
  const std::string where = fmt::format("{}: {}", config.where(), kParameters);
  HeadSizes near = heads;
  if (near.yarn) {  // sliding layers see no further in a longer text
    near.yarn.reset();
    near.context.reset();
  }
  return {read_one(config, of_full, where, heads, full),
          read_one(config, inside("sliding_attention", sliding), where, near, sliding).rope};
}

}  // namespace winnow::model::detail
