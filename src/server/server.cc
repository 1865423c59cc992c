#include "server/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "api/llm_load.h"
#include "base/build_commit.h"
#include "base/error.h"
#include "base/readable.h"
#include "engine/prefix_store.h"
#include "model/cost.h"
#include "ops/kv_page.h"
#include "server/base_model.h"
#include "server/engine_thread.h"
#include "server/sampling_defaults.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

// Time to send remaining output after requests were ended.
constexpr std::chrono::seconds kLastWords{1};

ServiceConfig complete(const ServerConfig& server, const LoadOptions& options,
                       std::optional<engine::StateKind> state_kind) {
  ServiceConfig config = server.service;
  if (config.model_name.empty()) {
    config.model_name = name_of_model(options.model);
  }
  config.model_directory = options.model;
  config.state_kind = std::move(state_kind);
  if (!server.cache_dir.empty()) {
    config.response_directory = std::filesystem::path(server.cache_dir) / "responses";
  }
  config.most = {.sequences = server.max_sequences,
                 .requests = server.engine.most_samples,
                 .connections = server.http.max_connections};
  return config;
}

HttpConfig complete(HttpConfig http, const ServiceConfig& service) {
  http.headers.emplace_back("X-Content-Type-Options", "nosniff");
  if (!service.cors_origin.empty()) {
    http.headers.emplace_back("Access-Control-Allow-Origin", service.cors_origin);
    http.headers.emplace_back("Access-Control-Expose-Headers",
                              "X-Request-Id, Retry-After, X-Winnow-Ignored");
    http.headers.emplace_back("Vary", "Origin");
  }
  return http;
}

engine::EngineConfig complete(engine::EngineConfig engine, const ServerConfig& config,
                              KvEvents* events) {
  engine.prefix_listener = events;
  engine.max_sequences = config.max_sequences;
  engine.reuse_prefixes = config.prefix_cache;
  if (config.prefix_gib > 0.0) {
    engine.prefix_bytes = static_cast<std::size_t>(config.prefix_gib * 0x1p30);
  }
  return engine;
}

// Throws if `flag` is set without prefix caching, which it needs.
void require_prefixes(std::string_view flag, const ServerConfig& config,
                      const engine::LoadedModel& model) {
  require(config.prefix_cache, "{}: is for prefixes, but --no-prefix-cache keeps none", flag);
  require(model.engine.cache.traits().shares_prefixes(), "{}: under {} prefixes cannot be shared",
          flag, kvcache::rule_name(model.engine.cache.rule));
}

// The kind of states that leave the process or come from elsewhere; nullopt if none do. Reads
// all of the model's files.
std::optional<engine::StateKind> find_state_kind(const LoadOptions& options,
                                                 const ServerConfig& config,
                                                 const engine::LoadedModel& model) {
  const std::pair<std::string_view, bool> flags[] = {
      {"--cache-dir", !config.cache_dir.empty()},
      {"--serve-states", config.serve_states},
      {"--prefill-from", !config.prefill.url.empty()}};
  bool any = false;
  for (const auto& [flag, given] : flags) {
    if (given) {
      require_prefixes(flag, config, model);
      any = true;
    }
  }
  return any ? std::optional<engine::StateKind>(std::in_place, engine::model_digest(options),
                                                model.cache_shape(), model.engine)
             : std::nullopt;
}

// Where prefixes are stored that do not fit in memory; null: nowhere.
std::unique_ptr<engine::PrefixStore> open_store(const ServerConfig& config,
                                                const std::optional<engine::StateKind>& kind,
                                                Log& log) {
  return config.cache_dir.empty()
             ? nullptr
             : std::make_unique<engine::PrefixStore>(
                   config.cache_dir, static_cast<std::size_t>(config.cache_dir_gib * 0x1p30),
                   kind.value(), [&log](const std::string& message) {
                     log.write(LogLevel::warn, "cache_dir", {{"message", message}});
                   });
}

// The source of states that another server computes; null: none.
std::unique_ptr<PrefillClient> open_prefill(const ServerConfig& config,
                                            const std::optional<engine::StateKind>& kind,
                                            Log& log) {
  return config.prefill.url.empty()
             ? nullptr
             : std::make_unique<PrefillClient>(
                   config.prefill, kind.value(), [&log](const std::string& message) {
                     log.write(LogLevel::warn, "prefill", {{"message", message}});
                   });
}

// The publisher of prefix events to routers; null: none.
std::unique_ptr<KvEvents> open_events(const ServerConfig& config, const engine::LoadedModel& model,
                                      Log& log) {
  if (config.kv_events.endpoint.empty()) {
    return nullptr;
  }
  require_prefixes("--kv-events", config, model);
  auto events = open_kv_events(config.kv_events);
  const bool binds = binds_endpoint(config.kv_events.endpoint);
  log.write(LogLevel::info, "kv_events",
            {{"endpoint", config.kv_events.endpoint},
             {"message", binds ? "bound: subscribers connect here"
                               : "connects: a subscriber must bind this address; to bind here, "
                                 "write tcp://*:PORT"}});
  return events;
}

// The ratio that the model was trained for; 0: not known.
double trained_ratio(const model::ModelSpec& spec, const kvcache::RuleTraits& rule) {
  if (rule.has_budget) {
    return 0.0;
  }
  if (rule.merges) {
    return spec.dmc ? spec.dmc->target_cr : 0.0;
  }
  return rule.marks && spec.dms ? spec.dms->target_cr : 0.0;
}

// Entries of a sequence of so many tokens, compressed as the model was trained to; 0: not known.
double expected_entries(const engine::LoadedModel& model, double tokens) {
  const double dense = model::dense_entries(model.spec(), tokens);
  const kvcache::RuleTraits& rule = model.engine.cache.traits();
  if (rule.keeps_all) {
    return dense;
  }
  const double ratio = trained_ratio(model.spec(), rule);
  if (ratio <= 0.0) {
    return 0.0;
  }
  const auto window = static_cast<double>(std::max(model.engine.cache.window, 0));
  const double kept = model::dense_entries(model.spec(), std::min(tokens, window));
  return kept + (dense - kept) / ratio;
}

// Warns if the cache is not expected to hold one sequence as long as the context.
void check_capacity(const engine::LoadedModel& model, int context, std::size_t capacity, Log& log) {
  const kvcache::CacheShape shape = model.cache_shape();
  const double bytes =
      expected_entries(model, context) *
      static_cast<double>(shape.page_layout(model.engine.cache.format).entry_bytes());
  if (bytes > static_cast<double>(capacity)) {
    log.write(LogLevel::warn, "capacity",
              {{"message", fmt::format("a sequence of --max-context {} tokens takes about {} "
                                       "GiB, and the cache has {} (--kv-gib): requests that "
                                       "fill it end with 400",
                                       context, readable_number(bytes / 0x1p30),
                                       readable_number(static_cast<double>(capacity) / 0x1p30))}});
  }
}

// Warns if connections run out before answers do: clients then get 503 instead of the 429 after
// which routers try another server.
void check_connections(int connections, int requests, Log& log) {
  if (connections <= requests) {
    log.write(
        LogLevel::warn, "limits",
        {{"message", fmt::format("--max-connections {} is not above --max-requests {}: clients "
                                 "get 503 before 429; idle connections count, too",
                                 connections, requests)}});
  }
}

}  // namespace

// In order of dependence.
struct Server::Parts {
  Parts(const LoadOptions& options, const ServerConfig& config)
      : log(config.log_level),
        model(engine::load_model(options)),
        tokenizer(load_tokenizer(options.model)),
        chat_template(ChatTemplate::load(options.model)),
        state_kind(find_state_kind(options, config, *model)),
        // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDeleteLeaks): it does not see the owner
        store(open_store(config, state_kind, log)),
        prefill(open_prefill(config, state_kind, log)),
        events(open_events(config, *model, log)),
        engine(
            std::in_place, *model->backend, complete(model->engine, config, events.get()),
            config.engine, [this](std::function<void()> work) { http.run(std::move(work)); },
            store.get(), prefill.get()),
        service(complete(config, options, config.serve_states ? state_kind : std::nullopt), *model,
                *tokenizer, chat_template, *engine, log),
        http(
            complete(config.http, config.service),
            [this](const HttpRequest& head, bool full) { return service.refuse(head, full); },
            Service::send_refusal,
            [this](HttpRequest request, const std::shared_ptr<Reply>& reply) {
              service.handle(std::move(request), reply);
            },
            [this](const HttpRecord& record) { service.note(record); },
            [this](const std::string& message) {
              log.write(LogLevel::warn, "http", {{"message", message}});
            }) {
    service.count_connections(http);
    for (const auto& [name, adapter] : service.adapters()) {
      if (events != nullptr) {
        events->name_adapter(adapter.get(), name);
      }
    }
  }
  // First stop accepting requests, then stop the engine, then free the connections.
  ~Parts() {
    http.stop();
    engine.reset();
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;

  Log log;
  std::unique_ptr<const engine::LoadedModel> model;
  std::unique_ptr<const Tokenizer> tokenizer;
  std::optional<ChatTemplate> chat_template;
  std::optional<engine::StateKind> state_kind;
  std::unique_ptr<engine::PrefixStore> store;
  std::unique_ptr<PrefillClient> prefill;
  std::unique_ptr<KvEvents> events;
  std::optional<EngineThread> engine;
  Service service;
  HttpServer http;
};

Server::Server(const LoadOptions& options, ServerConfig config)
    : parts_(std::make_unique<Parts>(options, config)) {
  const engine::EngineConfig& engine = parts_->model->engine;
  parts_->log.write(LogLevel::info, "serving",
                    {{"version", WINNOW_VERSION},
                     {"commit", build_commit()},
                     {"model", parts_->service.config().model_name},
                     {"device", options.device},
                     {"weights", options.weights},
                     {"speculate", options.speculate},
                     {"draft_model", options.draft_model},
                     {"host", config.http.host},
                     {"port", port()},
                     {"tls", !config.http.tls_cert.empty()},
                     {"cache", kvcache::rule_name(engine.cache.rule)},
                     {"kv_dtype", ops::format_name(engine.cache.format)},
                     {"kv_capacity_bytes", parts_->engine->report().engine.capacity_bytes},
                     {"host_capacity_bytes", engine.host_bytes},
                     {"max_context", parts_->service.context()},
                     {"max_sequences", config.max_sequences},
                     {"max_requests", config.engine.most_samples},
                     {"max_connections", config.http.max_connections},
                     {"sampling", to_json(parts_->service.config().limits.sampling)}});
  check_capacity(*parts_->model, parts_->service.context(),
                 parts_->engine->report().engine.capacity_bytes, parts_->log);
  check_connections(config.http.max_connections, config.engine.most_samples, parts_->log);
}

Server::~Server() = default;

int Server::port() const {
  return parts_->http.port();
}

std::string Server::failure() const {
  return parts_->engine->failure();
}

void Server::leave() {
  parts_->service.leave();
  parts_->log.write(LogLevel::info, "leaving", {{"requests", parts_->engine->open_requests()}});
}

bool Server::drain(std::chrono::milliseconds most) {
  parts_->service.refuse_completions();
  parts_->log.write(LogLevel::info, "draining", {{"requests", parts_->engine->open_requests()}});
  const auto deadline = std::chrono::steady_clock::now() + most;
  const auto wait_while = [](const auto& condition, std::chrono::steady_clock::time_point end) {
    while (condition() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  };
  const auto busy = [&] { return parts_->engine->open_requests() > 0; };
  wait_while(busy, deadline);  // new requests get 503 (shutting down) meanwhile
  const bool finished = !busy();
  if (!finished) {
    parts_->engine->shut_down();
  }
  parts_->http.drain();
  // Connections must outlive the engine to send the last bytes of an answer, or an error.
  wait_while([&] { return busy() || parts_->http.connections() > 0; },
             std::max(deadline, std::chrono::steady_clock::now() + kLastWords));
  parts_->engine->store_until(std::max(deadline, std::chrono::steady_clock::now() + kLastWords));
  parts_->service.flush_responses();
  parts_->log.write(LogLevel::info, "stopped", {{"finished", finished}});
  return finished;
}

}  // namespace winnow::server
