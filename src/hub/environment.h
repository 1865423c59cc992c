// Settings of the Hugging Face Hub: the environment variables of huggingface_hub.
#pragma once

#include <filesystem>
#include <string>

namespace winnow::hub {

struct Environment {
  std::string endpoint;         // HF_ENDPOINT, else https://huggingface.co; no trailing slash
  std::filesystem::path cache;  // HF_HUB_CACHE, else HF_HOME/hub
  bool offline = false;         // HF_HUB_OFFLINE
  std::string token;            // HF_TOKEN, else the file HF_HOME/token; empty: none
  std::string token_source;     // where it comes from, or where it would be read from
  std::string certificates;     // a file of authorities instead of the system's; empty: none
};

/// Throws Error if a variable has an invalid value, or if neither HF_HOME nor HOME is set.
Environment read_environment();

/// The file of authorities that the environment names instead of the system's; empty: none.
std::string certificates_of_environment();

}  // namespace winnow::hub
