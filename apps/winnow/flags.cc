#include "apps/winnow/flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"
#include "checkpoint/json.h"
#include "kvcache/rule.h"

namespace winnow::cli {

void add_run_flags(CLI::App& command, LoadOptions& options) {
  const char* const group = "Cache and computation";
  command
      .add_option("--cache", options.cache,
                  "Which entries the KV cache keeps: auto (what the checkpoint was trained for), " +
                      kvcache::list_rules("or"))
      ->capture_default_str()
      ->type_name("RULE")
      ->group(group);
  command
      .add_option(
          "--cr", options.cr,
          fmt::format("Compression ratio of {}, which need it (no default)",
                      kvcache::list_rules("and", [](const auto& rule) { return rule.has_budget; })))
      ->type_name("X")
      ->group(group);
  command
      .add_option("--window", options.window,
                  "dms: steps for which a marked entry stays visible (default: the checkpoint's)")
      ->type_name("W")
      ->group(group);
  command
      .add_option("--kv-dtype", options.kv_dtype,
                  "How entries are stored: bf16, fp8, int8, q4 or fp32 (default: as --dtype)")
      ->type_name("TYPE")
      ->group(group);
  command
      .add_option("--kv-gib", options.kv_gib,
                  "Most memory for the cache in GiB; 0: what the machine has")
      ->capture_default_str()
      ->type_name("GIB")
      ->group(group);
  command.add_option("--dtype", options.dtype, "Computation in bf16 or fp32")
      ->capture_default_str()
      ->type_name("TYPE")
      ->group(group);
  command
      .add_option(
          "--weights", options.weights,
          "auto (as stored), int8, int4 or, on a CUDA device, fp8 (quantised while loading)")
      ->capture_default_str()
      ->type_name("FORMAT")
      ->group(group);
  command.add_option("--threads", options.threads, "Threads; 0: one per core")
      ->capture_default_str()
      ->type_name("T")
      ->group(group);
  command.add_option("--device", options.device, "Where to compute: cpu, cuda or cuda:N")
      ->capture_default_str()
      ->type_name("DEVICE")
      ->group(group);
  command
      .add_option("--chunk", options.chunk,
                  "Most prompt tokens per step; 0: 512 on the CPU, 8192 on a CUDA device")
      ->capture_default_str()
      ->type_name("N")
      ->group(group);
  command
      .add_flag("--deterministic", options.deterministic,
                "Results do not depend on chunking or batching, to the last bit (default: off)")
      ->group(group);
}

void add_load_flags(CLI::App& command, LoadOptions& options) {
  command.add_option("--model", options.model, "Hugging Face model directory (no default)")
      ->required()
      ->type_name("DIR");
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
