// Flags that several subcommands share.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/winnow/flag_group.h"
#include "winnow/llm.h"

namespace winnow::cli {

/// --model: a directory, a GGUF file or a name.
CLI::Option* add_model_flag(const FlagGroup& group, std::string& model);
/// --threads.
void add_threads_flag(const FlagGroup& group, int& threads);
/// --json: results as JSON.
void add_json_flag(const FlagGroup& group, bool& json);
/// --temperature and --top-p.
void add_temperature_flags(const FlagGroup& group, SamplingOptions& sampling);
/// These and all other sampling flags.
void add_sampling_flags(const FlagGroup& group, SamplingOptions& sampling);

/// --generation-config: whether to use the model's sampling defaults.
void add_generation_config_flag(const FlagGroup& group, std::string& name);
bool uses_generation_config(const std::string& name);

/// --probe and --probe-threshold.
void add_probe_flags(CLI::App& command, std::string& probe, std::optional<double>& threshold);
/// How the model is run: --cache, --cr, --window, --kv-dtype, --dtype, --weights, --threads ...
void add_run_flags(CLI::App& command, LoadOptions& options);
/// --speculate and --draft-model, for commands that generate.
void add_speculation_flags(CLI::App& command, LoadOptions& options);
/// --no-think, for commands that chat.
void add_no_think_flag(const FlagGroup& group, bool& no_think);
Thinking thinking_of(bool no_think);
/// --model, which is required, and the run flags.
void add_load_flags(CLI::App& command, LoadOptions& options);

/// Ids separated by commas or white space. `flag`: its name in messages.
std::vector<std::int32_t> parse_tokens(std::string_view text, std::string_view flag);

}  // namespace winnow::cli
