// How a model's authors want its tokens to be chosen where a request does not say.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>

#include "winnow/sampling.h"

namespace winnow::server {

/// What holds for every model: temperature 1, all tokens.
SamplingOptions neutral_sampling();

/// temperature, top_p, top_k, min_p and repetition_penalty of the model's generation_config.json;
/// `otherwise` where it says nothing or is not there. Throws Error naming file and key.
SamplingOptions read_sampling_defaults(const std::filesystem::path& directory,
                                       const SamplingOptions& otherwise = neutral_sampling());

/// What `defaults` say that neutral_sampling() does not.
nlohmann::ordered_json to_json(const SamplingOptions& defaults);

}  // namespace winnow::server
