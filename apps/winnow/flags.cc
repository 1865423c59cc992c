#include "apps/winnow/flags.h"

#include <algorithm>
#include <charconv>

#include "apps/winnow/loading_line.h"
#include "apps/winnow/model_names.h"
#include "base/error.h"
#include "checkpoint/json.h"
#include "kvcache/rule.h"

namespace winnow::cli {

CLI::Option* add_model_flag(const FlagGroup& group, std::string& model) {
  return group.open_option(kModelFlag, model, kModelType,
                           "Hugging Face model directory, a GGUF file, or org/name[@revision] on "
                           "the Hub, with :Q4_K_M or :FILE for its GGUF files (no default)");
}

void add_threads_flag(const FlagGroup& group, int& threads) {
  group.option("--threads", threads, "T", "Threads; 0: one per core");
}

void add_json_flag(const FlagGroup& group, bool& json) {
  group.flag("--json", json, "Print JSON (default: off)");
}

void add_temperature_flags(const FlagGroup& group, SamplingOptions& sampling) {
  group.option("--temperature", sampling.temperature, "X", "0: always the most likely token");
  group.option("--top-p", sampling.top_p, "P", "Only the smallest set with this probability");
}

void add_sampling_flags(const FlagGroup& group, SamplingOptions& sampling) {
  add_temperature_flags(group, sampling);
  group.option("--top-k", sampling.top_k, "K", "Only the K most likely tokens; 0: all");
  group.option("--min-p", sampling.min_p, "P",
               "Only tokens at least this fraction as likely as the most likely one");
  group.option("--repetition-penalty", sampling.repetition_penalty, "X",
               "Divides positive logits of tokens seen before");
  group.option("--seed", sampling.seed, "N", "Seed of the random choices");
}

void add_generation_config_flag(const FlagGroup& group, std::string& name) {
  group.option("--generation-config", name, "NAME",
               "Defaults of temperature, top_p, top_k, min_p and repetition_penalty: auto (the "
               "model's generation_config.json) or none");
}

bool uses_generation_config(const std::string& name) {
  require(name == "auto" || name == "none", "--generation-config {}: expected auto or none", name);
  return name == "auto";
}

void add_run_flags(CLI::App& command, LoadOptions& options) {
  options.on_layer = LoadingLine();
  const FlagGroup group(command, "Cache and computation");
  group.option("--cache", options.cache, "RULE",
               "Which entries the KV cache keeps: auto (what the checkpoint was trained for), " +
                   kvcache::list_rules("or"));
  group.open_option(
      "--cr", options.cr, "X",
      fmt::format("Compression ratio of {}, which need it (no default)",
                  kvcache::list_rules("and", [](const auto& rule) { return rule.has_budget; })));
  group.open_option(
      "--calibration", options.calibration, "FILE",
      fmt::format("{}: statistics of the model's queries, by winnow calibrate (no default)",
                  kvcache::list_rules("and", [](const auto& rule) { return rule.calibrated; })));
  group.open_option(
      "--window", options.window, "W",
      fmt::format(
          "{}, --probe: steps for which a marked entry stays visible (default: the model's or the "
          "probe's)",
          kvcache::list_rules("and", [](const auto& rule) { return rule.marks; })));
  add_probe_flags(command, options.probe, options.probe_threshold);
  group.open_option(
      "--kv-dtype", options.kv_dtype, "TYPE",
      "How entries are stored: bf16, fp8, int8, q4 or fp32 (default: as --dtype, for fp8 bf16)");
  group.open_option("--rope-context", options.context, "N",
                    "Longest text, where the model's RoPE depends on that: LongRoPE, dynamic "
                    "(default: as config.json says)");
  group.open_option("--rope-yarn", options.rope_yarn, "X",
                    "Stretch a plain RoPE by YaRN: X times the model's positions (default: not)");
  group.option("--kv-gib", options.kv_gib, "GIB",
               "Most memory for the cache in GiB; 0: nine tenths of what the weights leave");
  group.option("--host-gib", options.host_gib, "GIB",
               "Memory of the host in GiB to which prefixes and preempted sequences move from the "
               "cache, instead of being computed again; 0: none");
  group.option(
      "--dtype", options.dtype, "TYPE",
      "Computation in bf16, fp32 or, on a CUDA device with --weights fp8, fp8 (products of "
      "prompts and large batches)");
  group.option(
      "--weights", options.weights, "FORMAT",
      "auto (as stored; on a CUDA device bf16), or quantised while loading: int8, int4 or, on "
      "a CUDA device, fp8");
  add_threads_flag(group, options.threads);
  group.option("--device", options.device, "DEVICE", "Where to compute: cpu, cuda or cuda:N");
  group.option("--tensor-parallel", options.tensor_parallel, "N",
               "Ranks that each compute a part of the model: processes started by mpirun, srun or "
               "torchrun, else threads; with --device cuda one GPU each. At most as many as query "
               "heads");
  group.option("--rank-exchange", options.rank_exchange, "HOW",
               "How GPUs exchange results: auto (through each other's memory where they can reach "
               "it, else NCCL) or nccl");
  group.option("--chunk", options.chunk, "N",
               "Most prompt tokens per step; 0: 512 on the CPU, 8192 on a CUDA device");
  group.flag("--deterministic", options.deterministic,
             "Results do not depend on chunking or batching, to the last bit (default: off)");
}

void add_speculation_flags(CLI::App& command, LoadOptions& options) {
  const FlagGroup group(command, "Cache and computation");
  group.open_option(
      "--speculate", options.speculate, "HOW",
      "lookup or lookup:N: draft up to N (8) tokens by looking the last ones up in the text so "
      "far, verify them in one step; same answers. mtp or mtp:N: draft by the "
      "multi-token-prediction layer in the model's files. With --draft-model: model or model:N "
      "(default: off)");
  group.open_option(
      "--draft-model", options.draft_model, kModelType,
      "A small model with the same vocabulary, or an EAGLE-3 head of the model, which "
      "drafts instead; its cache takes a part of --kv-gib (no default)");
}

void add_no_think_flag(const FlagGroup& group, bool& no_think) {
  group.flag("--no-think", no_think,
             "Answers without reasoning, for models whose chat template can switch it off, such "
             "as Qwen3 (default: what the template says)");
}

Thinking thinking_of(bool no_think) {
  return no_think ? Thinking::off : Thinking::by_template;
}

void add_probe_flags(CLI::App& command, std::string& probe, std::optional<double>& threshold) {
  const FlagGroup group(command, "Cache and computation");
  CLI::Option* directory = group.open_option(
      "--probe", probe, kProbeType,
      "A compression probe for a plain model, loaded beside it: KVzap, Fast KVzip "
      "or hipEngine's sidecar; a directory, or KVzap's name on the Hub (no "
      "default)");
  group
      .open_option("--probe-threshold", threshold, "X",
                   "The probe evicts entries with a lower score (default: the probe's own; KVzap "
                   "without one: -4; Fast KVzip: none)")
      ->needs(directory);
}

void add_load_flags(CLI::App& command, LoadOptions& options) {
  add_model_flag(FlagGroup(command), options.model)->required();
  add_run_flags(command, options);
}

std::vector<std::int32_t> parse_tokens(std::string_view text, std::string_view flag) {
  constexpr std::string_view kSpace = " \t\r\n";
  const auto skip_space = [&](std::size_t at) {
    return std::min(text.find_first_not_of(kSpace, at), text.size());
  };
  std::vector<std::int32_t> tokens;
  std::size_t at = skip_space(0);
  while (at < text.size()) {
    const std::size_t end = std::min(text.find_first_of(", \t\r\n", at), text.size());
    const std::string_view word = text.substr(at, end - at);
    std::int32_t token = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    require(error == std::errc() && rest == word.data() + word.size() && token >= 0,
            "{}: {} is not a token id", flag, in_quotes(word));
    tokens.push_back(token);
    at = skip_space(end);
    if (at < text.size() && text[at] == ',') {
      at = skip_space(at + 1);
      require(at < text.size(), "{}: a token id is missing after the last comma", flag);
    }
  }
  require(!tokens.empty(), "{}: at least one token id is needed", flag);
  return tokens;
}

}  // namespace winnow::cli
