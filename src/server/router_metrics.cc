#include "server/router_metrics.h"

#include <string_view>

#include "server/metric_text.h"

namespace winnow::server {
namespace {

std::size_t block_count(const engine::EngineStats& engine, const CacheBlocks& blocks) {
  return blocks.bytes > 0 ? engine.capacity_bytes / blocks.bytes : 0;
}

// Escaped and quoted as a label's value.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char letter : text) {
    result += letter == '"' || letter == '\\' ? std::string{'\\', letter}
              : letter == '\n'                ? "\\n"
                                              : std::string{letter};
  }
  return result + '"';
}

}  // namespace

double cache_utilisation(const engine::EngineStats& engine) {
  return engine.capacity_bytes > 0 ? static_cast<double>(engine.running_bytes) /
                                         static_cast<double>(engine.capacity_bytes)
                                   : 0.0;
}

std::string router_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks) {
  std::string page;
  add("winnow_kv_utilisation", "gauge",
      "Share of the cache's bytes that running sequences hold (estimated).",
      cache_utilisation(engine), page);
  add("winnow_kv_block_tokens", "gauge", "Tokens of a block, as routers count.", blocks.tokens,
      page);
  add("winnow_kv_blocks", "gauge", "Blocks that fit in the cache if it is dense.",
      block_count(engine, blocks), page);
  return page;
}

std::string vllm_metrics(const engine::EngineStats& engine, const CacheBlocks& blocks,
                         std::string_view name, const AnswerCounts& answers) {
  std::string page;
  const std::string labels = fmt::format("engine=\"0\",model_name={}", quoted(name));
  const std::string set = fmt::format("{{{}}}", labels);
  const auto put = [&](std::string_view metric, std::string_view type, std::string_view help,
                       auto value) { add(metric, type, help, value, page, set); };
  put("vllm:num_requests_running", "gauge", "As winnow_sequences_running.", engine.running);
  put("vllm:num_requests_waiting", "gauge", "As winnow_sequences_waiting.", engine.waiting);
  put("vllm:kv_cache_usage_perc", "gauge", "As winnow_kv_utilisation; 1 is all.",
      cache_utilisation(engine));
  put("vllm:gpu_cache_usage_perc", "gauge", "The same, as older vLLM named it.",
      cache_utilisation(engine));
  add("vllm:cache_config_info", "gauge", "Tokens of a block, and blocks of a dense cache.", 1, page,
      fmt::format("{{block_size=\"{0}\",engine=\"0\",num_gpu_blocks=\"{1}\"}}", blocks.tokens,
                  block_count(engine, blocks)));
  put("vllm:num_preemptions_total", "counter", "As winnow_preemptions_total.", engine.preemptions);
  put("vllm:prompt_tokens_total", "counter", "As winnow_prompt_tokens_total.",
      engine.prompt_tokens);
  put("vllm:generation_tokens_total", "counter", "As winnow_generated_tokens_total.",
      answers.generated_tokens);
  put("vllm:prefix_cache_queries_total", "counter",
      "Tokens looked for: winnow_prompt_tokens_total.", engine.prompt_tokens);
  put("vllm:prefix_cache_hits_total", "counter", "Tokens found: winnow_prefix_tokens_total.",
      engine.reused_tokens);
  put("vllm:spec_decode_num_drafts_total", "counter", "As winnow_drafts_total.", engine.drafts);
  put("vllm:spec_decode_num_draft_tokens_total", "counter", "As winnow_drafted_tokens_total.",
      engine.drafted_tokens);
  put("vllm:spec_decode_num_accepted_tokens_total", "counter", "As winnow_accepted_tokens_total.",
      engine.accepted_tokens);
  constexpr std::string_view kFinished = "vllm:request_success_total";
  describe(kFinished, "counter", "Samples by why they ended.", page);
  for (const auto& [reason, count] : answers.samples) {
    page += fmt::format("{}{{{},finished_reason=\"{}\"}} {}\n", kFinished, labels, reason, count);
  }
  answers.queue.render("vllm:request_queue_time_seconds", "As winnow_queue_seconds.", page, labels);
  answers.first_token.render("vllm:time_to_first_token_seconds", "As winnow_first_token_seconds.",
                             page, labels);
  answers.between_tokens.render("vllm:inter_token_latency_seconds",
                                "As winnow_between_tokens_seconds.", page, labels);
  answers.whole_request.render("vllm:e2e_request_latency_seconds", "As winnow_request_seconds.",
                               page, labels);
  return page;
}

}  // namespace winnow::server
