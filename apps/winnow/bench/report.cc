#include "apps/winnow/bench/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/winnow/output.h"
#include "base/threads.h"
#include "engine/draft_options.h"
#include "ops/kv_page.h"

namespace winnow::cli {
namespace {

using Json = nlohmann::ordered_json;

// How the model was run.
Json run_json(const BenchOptions& options, const Setup& setup) {
  const kvcache::CacheConfig& cache = setup.engine.cache;
  const auto or_null = [](const auto& value) { return value ? Json(*value) : Json(); };
  return {{"model", setup.name},
          {"cache", kvcache::rule_name(cache.rule)},
          {"window", cache.traits().marks ? Json(cache.window) : Json()},
          {"cr", or_null(options.load.cr)},
          {"evict_rate", or_null(setup.evict_rate)},
          {"head_spread", setup.head_spread},
          {"dtype", options.load.dtype},
          {"weights", options.load.weights},
          {"kv_dtype", ops::format_name(cache.format)},
          {"threads", thread_count()}};
}

std::string title(const BenchOptions& options, const Setup& setup) {
  const kvcache::CacheConfig& cache = setup.engine.cache;
  std::string text = fmt::format("{}, weights {}, {} cache in {}", setup.name, options.load.weights,
                                 kvcache::rule_name(cache.rule), ops::format_name(cache.format));
  if (cache.traits().marks) {
    text += fmt::format(", window {}", cache.window);
  }
  if (setup.evict_rate) {
    text += fmt::format(", {:.1f}% drawn", 100.0 * *setup.evict_rate);
  }
  if (setup.head_spread > 0.0) {
    text += fmt::format(", heads keep {:g} to {:g} times as many", 1.0 - setup.head_spread,
                        1.0 + setup.head_spread);
  }
  return text + fmt::format(", {} threads", thread_count());
}

std::string draft_name(const BenchOptions& options) {
  if (engine::drafts_by_mtp(options.load)) {
    return "mtp";
  }
  return options.draft_shape.empty() ? options.load.draft_model : options.draft_shape;
}

// Adds a line to a table.
void add_row(std::string& text, const std::string& name, const std::string& value) {
  text += fmt::format("  {:<24}{}\n", name, value);
}

std::string readable_bytes_of(std::size_t count) {
  return readable_bytes(static_cast<double>(count));
}

}  // namespace

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FixedBatchReport& report) {
  const BenchResult& r = report.result;
  Json growth = Json::array();
  for (const GrowthPoint& point : r.growth) {
    growth.push_back(
        {{"tokens", point.tokens}, {"bytes", point.bytes}, {"dense_bytes", point.dense_bytes}});
  }
  Json json = run_json(options, setup);
  json.update(Json{
      {"batch", r.batch},
      {"depth", setup.plan.prefill_depth()},
      {"prefill", setup.plan.prefill},
      {"decode_depth", setup.plan.decode_depth()},
      {"generate", setup.plan.generate},
      {"fill_tokens_per_s", setup.plan.prefill_depth() > 0 ? Json(r.fill_tokens_per_s) : Json()},
      {"prefill_tokens_per_s", median(r.prefill_tokens_per_s)},
      {"decode_tokens_per_s", median(r.decode_tokens_per_s)},
      {"prefill_runs", r.prefill_tokens_per_s},
      {"decode_runs", r.decode_tokens_per_s},
      {"kv",
       {{"bytes", r.kv_bytes},
        {"dense_bytes", r.dense_bytes},
        {"compression_ratio", r.compression_ratio},
        {"live_entries", r.live_entries}}},
      {"weight_bytes_per_step", report.weight_bytes_per_step},
      {"entry_bytes_per_step", r.entry_bytes_per_step},
      {"read_bytes_per_s", report.bandwidth},
      {"floor_tokens_per_s", report.floor_tokens_per_s()},
      {"share_of_floor", report.share_of_floor()},
      {"peak_rss_bytes", report.peak_rss},
      {"growth", growth}});
  if (setup.plan.drafted > 0) {
    json["drafted"] = setup.plan.drafted;
    json["verify_steps_per_s"] = median(r.verify_steps_per_s);
    json["verify_runs"] = r.verify_steps_per_s;
  }
  if (!r.drafts_per_s.empty()) {
    json["draft_model"] = draft_name(options);
    json["drafts_per_s"] = median(r.drafts_per_s);
    json["draft_runs"] = r.drafts_per_s;
  }
  if (setup.plan.computed) {
    json["computed"] = std::min(*setup.plan.computed, r.batch);
  }
  if (!r.paths.prompt.empty()) {
    json["paths"] = {{"prefill", r.paths.prompt}, {"decode", r.paths.step}};
  }
  if (!r.rank_exchange.empty()) {
    json["rank_exchange"] = r.rank_exchange;
  }
  if (r.memory_in_use) {
    json["memory_in_use_bytes"] = *r.memory_in_use;
  }
  return json;
}

std::string table(const BenchOptions& options, const Setup& setup, const FixedBatchReport& report) {
  const BenchResult& r = report.result;
  const auto& bytes = readable_bytes_of;
  const auto speed = [](const std::vector<double>& runs) {
    return fmt::format("{:>10.2f} tokens/s  (median of {}, {:.2f} to {:.2f})", median(runs),
                       runs.size(), *std::ranges::min_element(runs),
                       *std::ranges::max_element(runs));
  };
  std::string text = title(options, setup) + fmt::format(", batch {}\n\n", r.batch);
  const auto row = [&](const std::string& name, const std::string& value) {
    add_row(text, name, value);
  };
  row(fmt::format("prefill {} @ {}", setup.plan.prefill, setup.plan.prefill_depth()),
      speed(r.prefill_tokens_per_s));
  row(fmt::format("decode {} @ {}", setup.plan.generate, setup.plan.decode_depth()),
      speed(r.decode_tokens_per_s));
  if (setup.plan.drafted > 0) {
    row(fmt::format("verify {} drafted @ {}", setup.plan.drafted, setup.plan.decode_depth()),
        fmt::format("{:>10.2f} steps/s  {:.2f} times as long as a decode step",
                    median(r.verify_steps_per_s),
                    median(r.decode_tokens_per_s) / median(r.verify_steps_per_s)));
  }
  if (!r.drafts_per_s.empty()) {
    row(fmt::format("draft {} @ {}", setup.plan.drafted, setup.plan.decode_depth()),
        fmt::format("{:>10.2f} drafts/s {:.2f} times as long as a decode step, by {}",
                    median(r.drafts_per_s), median(r.decode_tokens_per_s) / median(r.drafts_per_s),
                    draft_name(options)));
  }
  row("decode floor",
      fmt::format("{:>10.2f} tokens/s  {}", report.floor_tokens_per_s(),
                  report.share_of_floor() <= 1.0
                      ? fmt::format("{:.1f}% of it reached", 100.0 * report.share_of_floor())
                      : "from memory; the processor's caches held a part"));
  row("read per step",
      fmt::format("{:>10} weights + {} entries at {}/s", bytes(report.weight_bytes_per_step),
                  bytes(r.entry_bytes_per_step), readable_bytes(report.bandwidth)));
  row("KV cache", fmt::format("{:>10} for {} when dense, {:.2f}x compressed", bytes(r.kv_bytes),
                              bytes(r.dense_bytes), r.compression_ratio));
  if (!r.paths.prompt.empty()) {
    row("fast paths", fmt::format("{} in prefill, {} in decode", r.paths.prompt, r.paths.step));
  }
  if (!r.rank_exchange.empty()) {
    row("ranks exchange by", std::string(r.rank_exchange));
  }
  if (r.memory_in_use) {
    row("memory in use", fmt::format("{:>10} of the device", bytes(*r.memory_in_use)));
  }
  row("peak memory", fmt::format("{:>10} of the host", bytes(report.peak_rss)));
  return text;
}

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FullLoadResult& result) {
  Json json = run_json(options, setup);
  json.update(Json{{"input", setup.load->input},
                   {"output", setup.load->output},
                   {"least_output", setup.load->least_output},
                   {"requests", setup.load->requests},
                   {"max_sequences", setup.engine.max_sequences},
                   {"seconds", result.seconds},
                   {"output_tokens_per_s", result.output_tokens_per_s},
                   {"steady_tokens_per_s", result.steady_tokens_per_s},
                   {"ms_per_token_p50", 1e3 * quantile(result.seconds_per_token, 0.5)},
                   {"ms_per_token_p99", 1e3 * quantile(result.seconds_per_token, 0.99)},
                   {"most_running", result.most_running},
                   {"preemptions", result.stats.preemptions},
                   {"steps",
                    {{"number", result.stats.steps},
                     {"prefill_seconds", result.throughput.prefill_seconds},
                     {"decode_seconds", result.throughput.decode_seconds},
                     {"plan_seconds", result.stats.plan_seconds},
                     {"draft_seconds", result.stats.draft_seconds},
                     {"sample_seconds", result.stats.sample_seconds}}},
                   {"kv",
                    {{"most_bytes", result.most_bytes},
                     {"capacity_bytes", result.stats.capacity_bytes},
                     {"compression_ratio", result.compression_ratio}}}});
  if (result.stats.drafts > 0) {
    json["drafted_tokens"] = result.stats.drafted_tokens;
    json["accepted_tokens"] = result.stats.accepted_tokens;
  }
  if (const auto& host = result.stats.host) {
    json["host"] = {{"saved", host->saved},
                    {"restored", host->restored},
                    {"refused", host->refused},
                    {"save_seconds", host->save_seconds},
                    {"restore_seconds", host->restore_seconds}};
  }
  return json;
}

std::string table(const BenchOptions& options, const Setup& setup, const FullLoadResult& result) {
  const FullLoadPlan& load = *setup.load;
  const std::string least =
      load.least_output < load.output ? fmt::format("{} to ", load.least_output) : "";
  std::string text =
      title(options, setup) + fmt::format(", {} requests of {} + {}{} tokens\n\n", load.requests,
                                          load.input, least, load.output);
  add_row(text, "output",
          fmt::format("{:>10.2f} tokens/s over {:.1f} s; {:.2f} in the middle half",
                      result.output_tokens_per_s, result.seconds, result.steady_tokens_per_s));
  add_row(
      text, "time per token",
      fmt::format("{:>10.2f} ms p50, {:.2f} ms p99", 1e3 * quantile(result.seconds_per_token, 0.5),
                  1e3 * quantile(result.seconds_per_token, 0.99)));
  add_row(
      text, "sequences at a time",
      fmt::format("{:>10} at most, {} preempted", result.most_running, result.stats.preemptions));
  if (result.stats.drafts > 0) {
    add_row(
        text, "drafts",
        fmt::format("{:>10} of {} tokens accepted, {:.2f} s drafting", result.stats.accepted_tokens,
                    result.stats.drafted_tokens, result.stats.draft_seconds));
  }
  if (const auto& host = result.stats.host) {
    add_row(text, "host memory",
            fmt::format("{:>10} states there and {} back, {:.2f} s waited", host->saved,
                        host->restored, host->save_seconds + host->restore_seconds));
  }
  add_row(
      text, "KV cache",
      fmt::format("{:>10} at most of {}, {:.2f}x compressed", readable_bytes_of(result.most_bytes),
                  readable_bytes_of(result.stats.capacity_bytes), result.compression_ratio));
  return text;
}

nlohmann::ordered_json to_json(const BenchOptions& options, const Setup& setup,
                               const FirstTokenResult& result) {
  Json json = run_json(options, setup);
  json.update(Json{{"prefix", setup.first_token->prefix},
                   {"new_tokens", kNewTokens},
                   {"first_token_seconds",
                    {{"computed", median(result.computed)},
                     {"from_cache", median(result.from_cache)},
                     {"from_host", median(result.from_host)}}},
                   {"runs",
                    {{"computed", result.computed},
                     {"from_cache", result.from_cache},
                     {"from_host", result.from_host}}},
                   {"computed_over_host", median(result.computed) / median(result.from_host)},
                   {"state",
                    {{"host_bytes", result.state_bytes},
                     {"save_seconds", result.save_seconds},
                     {"restore_seconds", result.restore_seconds}}}});
  return json;
}

std::string table(const BenchOptions& options, const Setup& setup, const FirstTokenResult& result) {
  std::string text = title(options, setup) +
                     fmt::format(", first token after a prefix of {} tokens and {} others\n\n",
                                 grouped(setup.first_token->prefix), kNewTokens);
  const auto row = [&](const std::string& name, const std::vector<double>& seconds) {
    add_row(text, name,
            fmt::format("{:>10.2f} ms  (median of {}, {:.2f} to {:.2f})", 1e3 * median(seconds),
                        seconds.size(), 1e3 * *std::ranges::min_element(seconds),
                        1e3 * *std::ranges::max_element(seconds)));
  };
  row("prefix computed", result.computed);
  row("in the cache", result.from_cache);
  row("in the host's memory", result.from_host);
  add_row(text, "its state",
          fmt::format("{:>10}, steps waited {:.2f} ms when it left and {:.2f} ms when it came back",
                      readable_bytes_of(result.state_bytes), 1e3 * result.save_seconds,
                      1e3 * result.restore_seconds));
  return text;
}

}  // namespace winnow::cli
