#include "base/error.h"
#include "model/config_fields.h"

namespace winnow::model::detail {
namespace {

constexpr double kMaxTheta = 1e12;
constexpr double kMaxFactor = 1e6;

void read_llama3(const JsonObject& scaling, int max_positions, RopeSpec& rope) {
  rope.scaling = RopeSpec::Scaling::llama3;
  rope.factor = scaling.number("factor", 1.0, kMaxFactor);
  rope.low_freq_factor = scaling.number("low_freq_factor", 1e-3, kMaxFactor);
  rope.high_freq_factor = scaling.number("high_freq_factor", 1e-3, kMaxFactor);
  rope.original_context =
      scaling.integer("original_max_position_embeddings", 1, kMaxPositions, max_positions);
  // The blend between the two divides by their difference.
  require(rope.low_freq_factor < rope.high_freq_factor,
          "{}: expected low_freq_factor below high_freq_factor, got {} and {}", scaling.where(),
          rope.low_freq_factor, rope.high_freq_factor);
}

/// `scaling`: the object that says the type, classic (rope_scaling) or of transformers 5
/// (rope_parameters).
void read_scaling(const JsonObject& scaling, int max_positions, RopeSpec& rope) {
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  if (type == "linear") {
    rope.scaling = RopeSpec::Scaling::linear;
    rope.factor = scaling.number("factor", 1.0, kMaxFactor);
  } else if (type == "llama3") {
    read_llama3(scaling, max_positions, rope);
  } else {
    require(type == "default",
            "{}: RoPE type {} is not supported; winnow knows default, linear and llama3",
            scaling.where(), in_quotes(type));
  }
}

/// The channels that a share of a head's makes; transformers cuts off.
int rotated_channels(const JsonObject& config, double share, int head_dim) {
  const int channels = static_cast<int>(share * head_dim);
  require(channels >= 2 && channels % 2 == 0,
          "{}: partial_rotary_factor {} of a head_dim of {} rotates {} channels, expected an even "
          "number of at least 2",
          config.where(), share, head_dim, channels);
  return channels;
}

}  // namespace

RopeSpec read_rope(const JsonObject& config, int head_dim, int max_positions) {
  RopeSpec rope;
  rope.theta = config.number("rope_theta", 1.0, kMaxTheta, rope.theta);
  double share = config.number("partial_rotary_factor", 0.0, 1.0, 1.0);
  // As in transformers: the classic key wins over the new one, and what stands inside over what
  // stands beside.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (config.has(key)) {
      const JsonObject parameters = config.object(key);
      rope.theta = parameters.number("rope_theta", 1.0, kMaxTheta, rope.theta);
      share = parameters.number("partial_rotary_factor", 0.0, 1.0, share);
      read_scaling(parameters, max_positions, rope);
      break;
    }
  }
  rope.channels = rotated_channels(config, share, head_dim);
  return rope;
}

}  // namespace winnow::model::detail
