// What the server answers: routes, keys, and the requests behind them.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/llm_load.h"
#include "server/engine_thread.h"
#include "server/http/http.h"
#include "server/http/http_server.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/openai/completion_request.h"
#include "server/openai/json_constraint.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

struct ServiceConfig {
  std::string model_name;
  std::vector<std::string> api_keys;  // none: everybody may ask
  std::string cors_origin;            // "": no other site's scripts may
  int max_context = 0;                // tokens of prompt and answer; 0: the model's positions
  RequestLimits limits;
};

/// All that requests need. Everything referred to must outlive it.
class Service {
 public:
  Service(ServiceConfig config, const engine::LoadedModel& model, const Tokenizer& tokenizer,
          const std::optional<ChatTemplate>& chat_template, EngineThread& engine, Log& log);

  /// What a request, of which only the head is needed, is refused with: a key that is missing or
  /// wrong.
  [[nodiscard]] std::optional<ApiError> refuse(const HttpRequest& head) const;
  /// Answers a request that was not refused; errors, too, are answers.
  void handle(HttpRequest request, const std::shared_ptr<Reply>& reply);
  /// Logs and counts what was answered.
  void note(const HttpRecord& record);
  /// From now on completions are refused (503).
  void refuse_completions() { refusing_ = true; }
  void count_connections(const HttpServer& http) { http_ = &http; }

  [[nodiscard]] const ServiceConfig& config() const { return config_; }
  [[nodiscard]] const winnow::model::ModelSpec& model() const { return model_.model.spec(); }
  [[nodiscard]] const kvcache::CacheConfig& cache() const { return model_.engine.cache; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] EngineThread& engine() { return engine_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }
  [[nodiscard]] Log& log() { return log_; }
  /// A constraint to JSON objects; ApiError when nothing could end such an answer.
  [[nodiscard]] std::shared_ptr<const engine::TokenConstraint> json_constraint();
  /// Most tokens of prompt and answer.
  [[nodiscard]] int context() const { return context_; }

  /// Throws ApiError for a text, in the field `param`, that is far too long for the context: to
  /// make tokens of it would keep a thread of the server for long.
  void check_length(std::size_t bytes, const std::string& param) const;
  /// Throws ApiError for ids, in the field `param`, that are no tokens'.
  void check_tokens(std::span<const std::int32_t> ids, const std::string& param) const;
  /// The tokens that ask for an answer to the conversation. Throws ApiError.
  [[nodiscard]] std::vector<std::int32_t> chat_prompt(
      const Conversation& conversation, const nlohmann::ordered_json& variables) const;

 private:
  void route(HttpRequest& request, const std::shared_ptr<Reply>& reply);
  [[nodiscard]] bool is_preflight(const HttpRequest& request) const;
  void complete(const HttpRequest& request, const std::shared_ptr<Reply>& reply, bool chat);
  [[nodiscard]] HttpResponse health() const;
  [[nodiscard]] HttpResponse show_metrics() const;
  [[nodiscard]] HttpResponse models(std::string_view id) const;
  [[nodiscard]] HttpResponse tokenize(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse detokenize(const HttpRequest& request) const;

  ServiceConfig config_;
  const engine::LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const std::optional<ChatTemplate>& chat_template_;
  EngineThread& engine_;
  Log& log_;
  Metrics metrics_;
  std::once_flag token_texts_made_;
  std::shared_ptr<const TokenTexts> token_texts_;  // made when the first answer is to be JSON
  int context_;
  std::int64_t started_;  // seconds since 1970
  std::atomic<const HttpServer*> http_ = nullptr;
  std::atomic<bool> refusing_ = false;
};

/// Seconds since 1970.
std::int64_t unix_time();

}  // namespace winnow::server
