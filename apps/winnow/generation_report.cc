#include "apps/winnow/generation_report.h"

#include <fmt/format.h>

#include <vector>

#include "apps/winnow/output.h"

namespace winnow::cli {
namespace {

using Json = nlohmann::ordered_json;

Json sample_json(const Sample& sample) {
  return {{"text", sample.text},
          {"token_ids", sample.token_ids},
          {"finish_reason", sample.finish_reason},
          {"kv",
           {{"bytes", sample.kv.bytes},
            {"dense_bytes", sample.kv.dense_bytes},
            {"compression_ratio", sample.kv.compression_ratio},
            {"live_entries", sample.kv.live_entries},
            {"per_layer_head", sample.kv.per_layer_head}}}};
}

// Speeds of the computed parts: a prompt of one token has no prefill, an answer of one token no
// decoding.
std::string speeds(const Generation& generation) {
  std::vector<std::string> parts;
  if (generation.prefill_tokens_per_s > 0.0) {
    parts.push_back(fmt::format("prefill {:.1f}", generation.prefill_tokens_per_s));
  }
  if (generation.decode_tokens_per_s > 0.0) {
    parts.push_back(fmt::format("decode {:.1f}", generation.decode_tokens_per_s));
  }
  return parts.empty() ? "" : fmt::format("; {} tokens/s", fmt::join(parts, ", "));
}

std::string drafts(const Generation& generation) {
  return generation.drafted_tokens > 0
             ? fmt::format("; {} of {} drafted tokens accepted",
                           grouped(generation.accepted_tokens), grouped(generation.drafted_tokens))
             : "";
}

}  // namespace

Json generation_json(const Generation& generation) {
  Json result = sample_json(generation.samples.front());
  result["prompt_tokens"] = generation.prompt_tokens;
  result["reused_tokens"] = generation.reused_tokens;
  if (generation.drafted_tokens > 0) {
    result["drafted_tokens"] = generation.drafted_tokens;
    result["accepted_tokens"] = generation.accepted_tokens;
  }
  result["prefill_tokens_per_s"] = generation.prefill_tokens_per_s;
  result["decode_tokens_per_s"] = generation.decode_tokens_per_s;
  if (generation.samples.size() > 1) {
    Json samples = Json::array();
    for (const Sample& sample : generation.samples) {
      samples.push_back(sample_json(sample));
    }
    result["samples"] = std::move(samples);
  }
  return result;
}

std::string summary(const Generation& generation, const ModelInfo& info) {
  const CacheStats& kv = generation.samples.front().kv;
  const std::string reused =
      generation.reused_tokens > 0
          ? fmt::format("{} of {} prompt tokens from --prompt-cache; ",
                        grouped(generation.reused_tokens), grouped(generation.prompt_tokens))
          : "";
  const std::string format = info.kv_dtype == "bf16" ? "" : fmt::format(" in {}", info.kv_dtype);
  return fmt::format("[{}{} cache, {}: {} for {} when dense{} ({:.2f}x compressed){}{}]", reused,
                     info.cache, info.kv_dtype, readable_bytes(static_cast<double>(kv.bytes)),
                     readable_bytes(static_cast<double>(kv.dense_bytes)), format,
                     kv.compression_ratio, speeds(generation), drafts(generation));
}

}  // namespace winnow::cli
