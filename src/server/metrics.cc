#include "server/metrics.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

#include "base/build_commit.h"
#include "server/metric_text.h"
#include "server/routes.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

// Initialised before main.
const auto process_start = std::chrono::system_clock::now();

void add_engine(const engine::EngineStats& engine, std::string& page) {
  add("winnow_sequences_running", "gauge", "Sequences that hold cache.", engine.running, page);
  add("winnow_sequences_waiting", "gauge",
      "Sequences that wait: for a place while winnow_max_sequences run, otherwise for cache.",
      engine.waiting, page);
  add("winnow_kv_bytes", "gauge", "Bytes of cache pages handed out.", engine.page_bytes, page);
  add("winnow_state_bytes", "gauge", "Bytes of these that recurrent layers keep.",
      engine.state_bytes, page);
  add("winnow_kv_capacity_bytes", "gauge", "Bytes of all cache pages.", engine.capacity_bytes,
      page);
  add("winnow_preemptions_total", "counter", "Preempted sequences.", engine.preemptions, page);
  add("winnow_engine_steps_total", "counter", "Batches run.", engine.steps, page);
  add("winnow_drafts_total", "counter", "Drafts that steps have verified.", engine.drafts, page);
  add("winnow_drafted_tokens_total", "counter", "Tokens that speculation has drafted.",
      engine.drafted_tokens, page);
  add("winnow_accepted_tokens_total", "counter", "Drafted tokens that were right.",
      engine.accepted_tokens, page);
  add("winnow_prompt_tokens_total", "counter",
      "Prompt tokens of started sequences, computed or found in the prefix cache.",
      engine.prompt_tokens, page);
  add("winnow_prefix_tokens_total", "counter", "Prompt tokens found in the prefix cache.",
      engine.reused_tokens, page);
  add("winnow_prefix_hits_total", "counter", "Sequences with a prefix in the cache.",
      engine.prefix_hits, page);
  add("winnow_prefix_misses_total", "counter", "Sequences without a prefix in the cache.",
      engine.prefix_misses, page);
  add("winnow_prefixes", "gauge", "States in the prefix cache.", engine.prefixes, page);
}

void add_draft_model(const engine::DraftMemory& memory, std::string& page) {
  add("winnow_draft_kv_bytes", "gauge", "Bytes of the draft model's cache pages handed out.",
      memory.bytes, page);
  add("winnow_draft_kv_capacity_bytes", "gauge", "Bytes of all cache pages of the draft model.",
      memory.capacity_bytes, page);
}

void add_host(const engine::HostTierStats& host, std::string& page) {
  add("winnow_host_bytes", "gauge", "Bytes of states in the host's memory (--host-gib).",
      host.bytes, page);
  add("winnow_host_prefixes", "gauge", "Prefixes among these states.", host.prefixes, page);
  add("winnow_host_saved_total", "counter",
      "Prefixes and preempted sequences copied to the host's memory.", host.saved, page);
  add("winnow_host_restored_total", "counter", "States copied back into the cache.", host.restored,
      page);
  add("winnow_host_restored_tokens_total", "counter", "Tokens of these states.",
      host.restored_tokens, page);
  add("winnow_host_refused_total", "counter", "States without room in the host's memory.",
      host.refused, page);
  add("winnow_host_damaged_total", "counter",
      "States there whose checksum did not match: they were computed again.", host.damaged, page);
  constexpr std::string_view kSeconds = "winnow_host_seconds_total";
  describe(kSeconds, "counter", "Time that steps waited for copies to the host's memory and back.",
           page);
  page += fmt::format("{}{{direction=\"out\"}} {:.6f}\n", kSeconds, host.save_seconds);
  page += fmt::format("{}{{direction=\"in\"}} {:.6f}\n", kSeconds, host.restore_seconds);
}

void add_store(const engine::PrefixStoreStats& store, std::string& page) {
  add("winnow_stored_prefix_hits_total", "counter", "States of prefixes read from disk.",
      store.hits, page);
  add("winnow_stored_prefix_misses_total", "counter",
      "Prompts with nothing on disk beyond what memory has.", store.misses, page);
  add("winnow_stored_prefix_refused_total", "counter",
      "State files that were removed: damaged, or in a format that this version does not know.",
      store.refused, page);
  add("winnow_stored_prefix_written_total", "counter", "States written to disk.", store.written,
      page);
  add("winnow_stored_prefix_dropped_total", "counter",
      "States that could not be written, or not fast enough.", store.dropped, page);
  add("winnow_stored_prefix_files", "gauge", "State files in the directory.", store.files, page);
  add("winnow_stored_prefix_bytes", "gauge", "Bytes of state files in the directory.", store.bytes,
      page);
}

void add_prefill(const PrefillClientStats& prefill, std::string& page) {
  add("winnow_fetched_states_total", "counter", "States that another server has computed.",
      prefill.states, page);
  add("winnow_fetched_state_bytes_total", "counter", "Bytes of these states.", prefill.bytes, page);
  add("winnow_fetched_state_failures_total", "counter",
      "States that were asked for and did not come, or were of no use.", prefill.failures, page);
  constexpr std::string_view kSeconds = "winnow_fetched_state_seconds_total";
  describe(kSeconds, "counter", "Time from questions to states.", page);
  page += fmt::format("{} {:.6f}\n", kSeconds, prefill.seconds);
}

void add_limits(const ServerLimits& most, std::string& page) {
  add("winnow_max_sequences", "gauge", "Most sequences that hold cache (--max-sequences).",
      most.sequences, page);
  add("winnow_max_requests", "gauge", "Most answers that run or wait (--max-requests).",
      most.requests, page);
  add("winnow_max_connections", "gauge", "Most open connections (--max-connections).",
      most.connections, page);
}

// Where the engine's thread spends its time.
void add_engine_seconds(const EngineReport& report, std::string& page) {
  constexpr std::string_view kName = "winnow_engine_seconds_total";
  describe(kName, "counter", "Time of the engine's thread by what it does.", page);
  const auto part = [&](std::string_view name, double seconds) {
    page += fmt::format("{}{{part=\"{}\"}} {:.6f}\n", kName, name, seconds);
  };
  part("plan", report.engine.plan_seconds);
  part("draft", report.engine.draft_seconds);
  part("forward", report.engine.forward_seconds);
  part("sample", report.engine.sample_seconds);
  part("deliver", report.deliver_seconds);
  part("idle", report.idle_seconds);
}

}  // namespace

// A counter that first appears as 1 has not grown for Prometheus: the first failure would be
// missed.
Metrics::Metrics()
    : requests_{{"completed", 0}, {"cancelled", 0}, {"refused", 0}, {"failed", 0}},
      samples_{{"stop", 0}, {"length", 0}, {"error", 0}, {"abort", 0}} {
  constexpr std::array kStatuses{200, 429, 500, 503};
  for (const RouteEntry& entry : routes()) {
    for (const int status : kStatuses) {
      if (entry.endpoint != 0) {
        http_[{std::string(entry.path), status}] = 0;
      }
    }
  }
}

void Metrics::count_http(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++http_[{std::string(route), status}];
}

void Metrics::count_sample(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++samples_[std::string(reason)];
}

void Metrics::count_request(std::string_view outcome, const AnswerUsage& usage) {
  live_entries_ += usage.live_entries;
  dense_entries_ += usage.dense_entries;
  const std::lock_guard lock(mutex_);
  ++requests_[std::string(outcome)];
}

std::string Metrics::render(const EngineReport& report, const HttpLoad& http,
                            const ServerLimits& most, const RouterView& routers) const {
  std::string page;
  describe("winnow_build_info", "gauge", "The version and the commit, as labels.", page);
  page += fmt::format("winnow_build_info{{version=\"{}\",commit=\"{}\"}} 1\n", WINNOW_VERSION,
                      build_commit());
  describe("process_start_time_seconds", "gauge",
           "When the process started, in seconds since 1970.", page);
  page += fmt::format("process_start_time_seconds {:.2f}\n",
                      std::chrono::duration<double>(process_start.time_since_epoch()).count());
  add("winnow_ready", "gauge", "Whether /ready says yes.", http.ready ? 1 : 0, page);
  add("winnow_http_connections", "gauge", "Open connections.", http.connections, page);
  add("winnow_connections_refused_total", "counter",
      "Connections beyond --max-connections that were closed, unserved or after a 503.",
      http.refused_connections, page);
  add("winnow_log_lines_dropped_total", "counter",
      "Lines of the log that its reader had no room for.", http.dropped_log_lines, page);
  add("winnow_requests_open", "gauge", "Open completion requests.", report.open_requests, page);
  add_limits(most, page);
  add_engine(report.engine, page);
  page += router_metrics(report.engine, routers.blocks);
  if (!routers.vllm_name.empty()) {
    const std::lock_guard lock(mutex_);
    page += vllm_metrics(report.engine, routers.blocks, routers.vllm_name,
                         {.generated_tokens = generated_tokens_,
                          .samples = samples_,
                          .queue = queue,
                          .first_token = first_token,
                          .between_tokens = between_tokens,
                          .whole_request = whole_request});
  }
  add_engine_seconds(report, page);
  add("winnow_generated_tokens_total", "counter", "Tokens of answers.", generated_tokens_.load(),
      page);
  if (report.engine.draft_memory.capacity_bytes > 0) {
    add_draft_model(report.engine.draft_memory, page);
  }
  if (report.engine.host) {
    add_host(*report.engine.host, page);
  }
  if (report.store) {
    add_store(*report.store, page);
  }
  if (report.prefill) {
    add_prefill(*report.prefill, page);
  }
  add("winnow_kv_live_entries_total", "counter", "Entries that samples held at their end.",
      live_entries_.load(), page);
  add("winnow_kv_dense_entries_total", "counter", "Entries that they would have held if dense.",
      dense_entries_.load(), page);
  queue.render("winnow_queue_seconds", "From a request to its place in the cache.", page);
  first_token.render("winnow_first_token_seconds", "From a request to its first token.", page);
  between_tokens.render("winnow_between_tokens_seconds", "Between tokens of one sample.", page);
  whole_request.render("winnow_request_seconds", "From a request to the end of its answer.", page);
  const std::lock_guard lock(mutex_);
  describe("winnow_http_requests_total", "counter", "HTTP exchanges by route and status.", page);
  for (const auto& [key, count] : http_) {
    page += fmt::format("winnow_http_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first,
                        key.second, count);
  }
  describe(
      "winnow_requests_total", "counter",
      "Completion requests by outcome: completed, cancelled (the client left), refused (an error "
      "of the client that their run showed) or failed.",
      page);
  for (const auto& [outcome, count] : requests_) {
    page += fmt::format("winnow_requests_total{{outcome=\"{}\"}} {}\n", outcome, count);
  }
  return page;
}

}  // namespace winnow::server
