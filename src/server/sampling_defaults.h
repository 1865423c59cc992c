// A model's recommended sampling settings, for requests that do not set them.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "winnow/sampling.h"

namespace winnow::server {

/// The defaults for all models: temperature 1, all tokens.
SamplingOptions neutral_sampling();

/// temperature, top_p, top_k, min_p and repetition_penalty of the model's generation_config.json;
/// `otherwise` for absent keys or an absent file. "do_sample": false is temperature 0, whatever
/// temperature the file states. Throws Error naming file and key.
SamplingOptions read_sampling_defaults(const std::filesystem::path& directory,
                                       const SamplingOptions& otherwise = neutral_sampling());

/// The settings of `defaults` that differ from neutral_sampling().
nlohmann::ordered_json to_json(const SamplingOptions& defaults);

}  // namespace winnow::server
