// winnow serve: an OpenAI-compatible server.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "base/note.h"
#include "kvcache/rule_traits.h"
#include "server/api_keys.h"
#include "server/openai/field_table.h"
#include "server/server.h"

namespace winnow::cli {
namespace {

using std::chrono::milliseconds;

struct ServeCommand {
  LoadOptions load;
  server::ServerConfig server;
  std::string api_key_file;
  std::string log_level;  // empty: chosen by the output
  std::string generation_config = "auto";
  bool no_prefix_cache = false;
  bool fields = false;  // only print the table of fields
  std::optional<int> max_requests;
  std::optional<int> max_connections;
  double stream_interval = 0.0;  // milliseconds
  double header_timeout = 10.0;
  double keep_alive_timeout = 75.0;
  double body_timeout = 60.0;
  double write_timeout = 60.0;
  double shutdown_timeout = 30.0;
  double drain_delay = 0.0;
  std::string metrics_names = "winnow";
  std::string kv_events_format = "maps";
  double max_body_mib = 8.0;
  std::string prefill_api_key_file;
  double prefill_timeout = 30.0;
};

milliseconds to_milliseconds(double seconds, std::string_view flag) {
  require(std::isfinite(seconds) && seconds > 0.0 && seconds <= 86400.0,
          "{} {}: expected more than 0 and at most 86400 seconds", flag, seconds);
  return milliseconds(static_cast<std::int64_t>(std::ceil(seconds * 1e3)));
}

// Sets the options for routers.
void resolve_routers(const ServeCommand& command, server::ServerConfig& config) {
  require(command.metrics_names == "winnow" || command.metrics_names == "vllm",
          "--metrics-names {}: expected winnow or vllm", command.metrics_names);
  config.service.vllm_metrics = command.metrics_names == "vllm";
  server::check_endpoint("--kv-events", config.kv_events.endpoint);
  server::check_endpoint("--kv-events-replay", config.kv_events.replay);
  config.kv_events.format = server::parse_kv_event_format(command.kv_events_format);
  require(config.kv_events.block_size >= 1 && config.kv_events.block_size <= 1 << 16,
          "--kv-block-size {}: expected 1 to {}", config.kv_events.block_size, 1 << 16);
  config.service.block_tokens = config.kv_events.block_size;
  require(std::isfinite(command.drain_delay) && command.drain_delay >= 0.0 &&
              command.drain_delay <= 86400.0,
          "--drain-delay {}: expected 0 to 86400 seconds", command.drain_delay);
}

void read_keys(const std::string& path, std::string_view flag, std::vector<std::string>& keys) {
  const std::vector<std::string> found = server::parse_keys(read_file(path));
  require(!found.empty(), "{} {}: holds no key", flag, path);
  keys.insert(keys.end(), found.begin(), found.end());
}

// Sets the server that states are fetched from.
void resolve_prefill(const ServeCommand& command, server::PrefillClientConfig& config) {
  require(config.least_tokens >= 1 && config.least_tokens <= 1 << 24,
          "--prefill-least {}: expected 1 to {}", config.least_tokens, 1 << 24);
  config.timeout = to_milliseconds(command.prefill_timeout, "--prefill-timeout");
  if (!command.prefill_api_key_file.empty()) {
    std::vector<std::string> keys;
    read_keys(command.prefill_api_key_file, "--prefill-api-key-file", keys);
    config.api_key = keys.front();
  }
}

constexpr int kMostLimit = 1 << 20;  // of sequences, answers and connections

// Sets how many answers and connections there may be. By default as many answers may wait as are
// computed, and half of the connections may be idle.
void resolve_limits(const ServeCommand& command, server::ServerConfig& config) {
  const auto positive = [](int value, std::string_view flag) {
    require(value >= 1 && value <= kMostLimit, "{} {}: expected 1 to {}", flag, value, kMostLimit);
    return value;
  };
  const int sequences = positive(config.max_sequences, "--max-sequences");
  const int requests = positive(
      command.max_requests.value_or(std::clamp(2 * sequences, 256, kMostLimit)), "--max-requests");
  config.engine.most_samples = requests;
  config.http.max_connections =
      positive(command.max_connections.value_or(std::clamp(2 * requests, 1024, kMostLimit)),
               "--max-connections");
}

server::ServerConfig resolve(const ServeCommand& command) {
  server::ServerConfig config = command.server;
  config.log_level = server::parse_log_level(!command.log_level.empty() ? command.log_level
                                             : ::isatty(STDERR_FILENO)  ? "warn"
                                                                        : "info");
  config.prefix_cache = !command.no_prefix_cache;
  config.service.model_sampling = uses_generation_config(command.generation_config);
  config.http.header_timeout = to_milliseconds(command.header_timeout, "--header-timeout");
  config.http.keep_alive_timeout =
      to_milliseconds(command.keep_alive_timeout, "--keep-alive-timeout");
  config.http.body_timeout = to_milliseconds(command.body_timeout, "--body-timeout");
  config.http.write_timeout = to_milliseconds(command.write_timeout, "--write-timeout");
  require(command.max_body_mib > 0.0 && command.max_body_mib <= 1024.0,
          "--max-body-mib {}: expected more than 0 and at most 1024", command.max_body_mib);
  config.http.max_body_bytes = static_cast<std::size_t>(command.max_body_mib * 0x1p20);
  require(config.http.port >= 0 && config.http.port <= 65535, "--port {}: expected 0 to 65535",
          config.http.port);
  resolve_limits(command, config);
  config.engine.hold_seconds = command.stream_interval / 1e3;
  require(std::isfinite(command.stream_interval) && config.engine.hold_seconds >= 0.0 &&
              config.engine.hold_seconds <= 1.0,
          "--stream-interval {}: expected 0 to 1000 milliseconds", command.stream_interval);
  require(config.http.threads >= 1 && config.http.threads <= 256,
          "--http-threads {}: expected 1 to 256", config.http.threads);
  require(config.service.max_context >= 0, "--max-context {}: is negative",
          config.service.max_context);
  require(std::isfinite(config.prefix_gib) && config.prefix_gib >= 0.0,
          "--prefix-cache-gib {}: expected a number from 0 up", config.prefix_gib);
  require(std::isfinite(config.cache_dir_gib) && config.cache_dir_gib > 0.0 &&
              config.cache_dir_gib <= 1e6,
          "--cache-dir-size {}: expected more than 0 and at most 1000000 GiB",
          config.cache_dir_gib);
  resolve_routers(command, config);
  if (!command.api_key_file.empty()) {
    read_keys(command.api_key_file, "--api-key-file", config.service.api_keys);
  }
  resolve_prefill(command, config.prefill);
  return config;
}

// IPv6 addresses are in brackets (RFC 3986).
std::string host_in_url(const std::string& host) {
  return host.find(':') != std::string::npos && host.front() != '[' ? fmt::format("[{}]", host)
                                                                    : host;
}

// Chats rarely set max_tokens, and then a budget is a share of the whole context.
void note_budget(const LoadOptions& load) {
  const auto rule = kvcache::parse_rule(load.cache);
  if (rule && kvcache::traits_of(*rule).has_budget &&
      kvcache::traits_of(*rule).budget_of != kvcache::BudgetOf::prompt) {
    note(fmt::format(
        "--cache {}: the budget is a part of prompt and max_tokens; a request without max_tokens "
        "counts the rest of the context, so its cache may not shrink",
        load.cache));
  }
}

void note_missing_keys(const server::ServerConfig& config) {
  const std::string& host = config.http.host;
  const bool is_local = host.starts_with("127.") || host == "::1" || host == "localhost";
  if (config.service.api_keys.empty() && !is_local) {
    note(fmt::format("--host {} without --api-key-file: whoever reaches this server may use it",
                     host));
  }
}

int run_serve(const ServeCommand& command) {
  if (command.fields) {
    print_now(server::field_page());
    return kSuccess;
  }
  require(!command.load.model.empty(), "--model is required (see winnow serve --help)");
  const auto shutdown = to_milliseconds(command.shutdown_timeout, "--shutdown-timeout");
  const server::ServerConfig config = resolve(command);
  server::Server server(command.load, config);
  note_budget(command.load);
  note_missing_keys(config);
  print_now(fmt::format("winnow serves on {}://{}:{}\n",
                        config.http.tls_cert.empty() ? "http" : "https",
                        host_in_url(config.http.host), server.port()));
  while (!interrupted() && server.failure().empty()) {
    std::this_thread::sleep_for(milliseconds(50));
  }
  if (command.drain_delay > 0.0 && server.failure().empty()) {
    server.leave();
    const auto end =
        std::chrono::steady_clock::now() + to_milliseconds(command.drain_delay, "--drain-delay");
    while (std::chrono::steady_clock::now() < end && server.failure().empty()) {
      std::this_thread::sleep_for(milliseconds(50));
    }
  }
  if (::isatty(STDERR_FILENO) == 1 && server.failure().empty()) {
    note(
        fmt::format("ends when open answers are finished, after {:g} s at most; Ctrl-C again ends "
                    "it now",
                    command.shutdown_timeout));
  }
  server.drain(shutdown);
  require(server.failure().empty(), "the engine has failed: {}", server.failure());
  return kSuccess;
}

void add_network_flags(CLI::App& command, ServeCommand& options) {
  const FlagGroup group(command, "Network");
  server::HttpConfig& http = options.server.http;
  group.option("--host", http.host, "HOST", "Address to listen on; 0.0.0.0: all");
  group.option("--port", http.port, "N", "Port; 0: any free one");
  group.open_option("--tls-cert", http.tls_cert, "FILE",
                    "Certificate chain, PEM (default: no TLS)");
  group.open_option("--tls-key", http.tls_key, "FILE", "Private key, PEM (default: no TLS)");
  group
      .open_option("--api-key", options.server.service.api_keys, "KEY",
                   "Clients must send this key; may be given several times (default: none needed)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  group.open_option(
      "--api-key-file", options.api_key_file, "FILE",
      "A file with keys, one per line, which others cannot read in the list of processes; lines "
      "that begin with # are comments (default: none)");
  group.open_option("--cors-origin", options.server.service.cors_origin, "ORIGIN",
                    "Allow scripts of this origin (CORS); *: any (default: none)");
  group.option("--http-threads", http.threads, "N",
               "Threads for connections, and as many for parsing requests");
  group.open_option("--max-connections", options.max_connections, "N",
                    "Most open connections; on 64 more probes are answered, and others get status "
                    "503 (default: twice --max-requests, at least 1024)");
  group.option("--max-body-mib", options.max_body_mib, "MIB", "Largest body of a request in MiB");
  group.option("--stream-interval", options.stream_interval, "MS",
               "Milliseconds for which a stream collects tokens into one event; 0: none");
  group.option("--header-timeout", options.header_timeout, "S",
               "Seconds for a request's head to arrive");
  group.option("--keep-alive-timeout", options.keep_alive_timeout, "S",
               "Seconds after which a connection without a request closes");
  group.option("--body-timeout", options.body_timeout, "S",
               "Seconds for a request's body to arrive");
  group.option("--write-timeout", options.write_timeout, "S",
               "Seconds for a client to read what is sent");
  group.option("--shutdown-timeout", options.shutdown_timeout, "S",
               "Seconds to finish answers after SIGTERM or Ctrl-C; a second signal ends at once");
  group.open_option("--log-level", options.log_level, "LEVEL",
                    "error, warn, info or debug; JSON lines to standard error (default: info; on a "
                    "terminal warn)");
}

void add_scheduling_flags(CLI::App& command, ServeCommand& options) {
  const FlagGroup group(command, "Requests");
  server::ServerConfig& config = options.server;
  group.open_option("--model-name", config.service.model_name, "NAME",
                    "The model's name for clients (default: its directory's)");
  group.open_option("--model-alias", config.service.model_aliases, "NAME",
                    "Another name of the model for clients (several may be given)");
  group.open_option("--max-requests", options.max_requests, "N",
                    "Most open answers, n per prompt; further requests get status 429 (default: "
                    "twice --max-sequences, at least 256)");
  group.option("--max-sequences", config.max_sequences, "N",
               "Most sequences that hold cache at a time; others wait");
  group.open_option(
      "--tool-format", config.service.tool_format, "NAME",
      "The model's format of tool calls, see docs/serving-api.md (default: the one in its chat "
      "template)");
  group.open_option("--reasoning-format", config.service.reasoning_format, "NAME",
                    "The model's marks of reasoning: none, think, mistral, command, seed, kimi or "
                    "harmony (default: the marks that it has tokens for)");
  group
      .open_option("--lora", config.service.loras, "NAME=DIR",
                   "A LoRA adapter in PEFT's format, for requests with NAME as their model "
                   "(several may be given)")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  group.option(
      "--task", config.service.task, "NAME",
      "What the model is made for: generate, embed, rerank or auto (by the files beside it)");
  add_generation_config_flag(group, options.generation_config);
  group.flag("--trust-request-chat-template", config.service.trust_chat_templates,
             "Accept chat templates in requests (default: off)");
  group.flag("--fields", options.fields,
             "Print the table of all request fields, in Markdown, and exit");
  group.option("--max-context", config.service.max_context, "N",
               "Most tokens of prompt and answer; 0: the model's positions");
  CLI::Option* const no_prefixes =
      group.flag("--no-prefix-cache", options.no_prefix_cache,
                 "Do not reuse the cache of earlier prompts (default: off)");
  group
      .option("--prefix-cache-gib", config.prefix_gib, "GIB",
              "Drop prefixes while idle ones hold more than this; 0: only when running "
              "sequences need the room (on a CPU without --kv-gib: a quarter of the cache)")
      ->excludes(no_prefixes);
  CLI::Option* const directory =
      group.open_option("--cache-dir", config.cache_dir, "DIR",
                        "A directory for prefixes that do not fit into memory, or should outlive "
                        "the server (default: none)");
  group
      .option("--cache-dir-size", config.cache_dir_gib, "GIB",
              "Largest size of --cache-dir; the least recently used prefixes go first")
      ->needs(directory);
}

void add_router_flags(CLI::App& command, ServeCommand& options) {
  const FlagGroup group(command, "Routers");
  server::KvEventsConfig& events = options.server.kv_events;
  group.option("--drain-delay", options.drain_delay, "S",
               "Seconds after SIGTERM for which /ready says no and requests are still taken");
  group.option("--metrics-names", options.metrics_names, "NAME",
               "winnow, or vllm: /metrics also has what routers read under vLLM's names");
  group.option("--kv-block-size", events.block_size, "N",
               "Tokens of a block, as metrics and events count the cache");
  CLI::Option* const endpoint = group.open_option(
      "--kv-events", events.endpoint, "ENDPOINT",
      "Publish which prefixes are cached to this address of ZeroMQ, such as tcp://*:5557 "
      "(default: none)");
  group
      .open_option("--kv-events-replay", events.replay, "ENDPOINT",
                   "Where subscribers ask for the last 10,000 batches again (default: none)")
      ->needs(endpoint);
  group
      .open_option("--kv-events-topic", events.topic, "TOPIC",
                   "Topic of all batches (default: \"\")")
      ->needs(endpoint);
  group
      .option("--kv-events-format", options.kv_events_format, "NAME",
              "maps (as vLLM 0.33) or arrays (as vLLM up to 0.23)")
      ->needs(endpoint);
}

void add_prefill_flags(CLI::App& command, ServeCommand& options) {
  const FlagGroup group(command, "Prefill and decode apart");
  server::PrefillClientConfig& prefill = options.server.prefill;
  group.flag("--serve-states", options.server.serve_states,
             "Hand out the states of prompts to other servers at /v1/prefill (default: off)");
  CLI::Option* const url =
      group.open_option("--prefill-from", prefill.url, "URL",
                        "A server with --serve-states that computes long prompts for this one "
                        "(default: none)");
  group
      .open_option("--prefill-api-key-file", options.prefill_api_key_file, "FILE",
                   "A file whose first line is the key for it (default: none)")
      ->needs(url);
  group
      .option("--prefill-least", prefill.least_tokens, "TOKENS",
              "Ask it for prompts with at least so many tokens that are not cached")
      ->needs(url);
  group
      .option("--prefill-timeout", options.prefill_timeout, "S",
              "Seconds until a prompt is computed here")
      ->needs(url);
}

}  // namespace

void add_serve(CLI::App& app, Run& run) {
  std::shared_ptr<ServeCommand> options;
  CLI::App* command =
      add_command(app, run, "serve",
                  "Serves a model to OpenAI clients (/v1/chat/completions, /v1/completions) and to "
                  "browsers (a chat at /)",
                  options, run_serve);
  add_network_flags(*command, *options);
  add_scheduling_flags(*command, *options);
  add_router_flags(*command, *options);
  add_prefill_flags(*command, *options);
  add_load_flags(*command, options->load);
  add_speculation_flags(*command, options->load);
  command->get_option("--model")->required(false);  // --fields does not need it
}

}  // namespace winnow::cli
