// A generation as JSON and as a line for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "winnow/llm.h"

namespace winnow::cli {

/// The fields of sample 0 at the top level; if there are several samples, all under "samples".
nlohmann::ordered_json generation_json(const Generation& generation);

/// "cache dms: ... 8.1x smaller ... tokens/s"
std::string summary(const Generation& generation, const ModelInfo& info);

}  // namespace winnow::cli
