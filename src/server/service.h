// The server's request handling: routes, keys, and the handlers.
#pragma once

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/llm_load.h"
#include "engine/state_file.h"
#include "model/lora.h"
#include "server/engine_thread.h"
#include "server/http/http.h"
#include "server/http/http_server.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/model_task.h"
#include "server/openai/completion_request.h"
#include "server/openai/grammar_constraint.h"
#include "server/openai/prompt_tokens.h"
#include "server/openai/reasoning/thought_format.h"
#include "server/openai/tools/tool_format.h"
#include "server/responses/response_store.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

struct ServiceConfig {
  std::string model_name;
  std::vector<std::string> model_aliases;  // other names of the model
  std::vector<std::string> api_keys;       // none: no key is needed
  std::string cors_origin;                 // "": scripts of other sites may not ask
  int max_context = 0;                     // tokens of prompt and answer; 0: the model's positions
  bool trust_chat_templates = false;       // templates in requests
  std::filesystem::path model_directory;   // never shown in answers
  std::filesystem::path response_directory;  // for stored responses; empty: in memory
  std::string tool_format;                   // "": found by the chat template
  std::string reasoning_format;              // "": found by the model's tokens; "none": no parsing
  std::vector<std::string> loras;            // NAME=DIR: adapters, selected as models by name
  std::string task = "auto";                 // overrides the model's own task: find_model_task()
  bool model_sampling = true;                // generation_config.json sets the defaults
  bool vllm_metrics = false;                 // /metrics also uses vLLM's names
  int block_tokens = 16;                     // block size for router metrics
  /// For states served by /v1/prefill; nullopt: it is closed.
  std::optional<engine::StateKind> state_kind = {};
  RequestLimits limits;  // the model's sampling replaces theirs
  ServerLimits most;
};

/// The data and functions that requests need. Everything referenced must outlive it.
class Service {
 public:
  Service(ServiceConfig config, const engine::LoadedModel& model, const Tokenizer& tokenizer,
          const std::optional<ChatTemplate>& chat_template, EngineThread& engine, Log& log);

  /// The error that refuses a request by its head, if any: a missing or wrong key,
  /// or, except for probes, a server that is `full`.
  [[nodiscard]] std::optional<ApiError> refuse(const HttpRequest& head, bool full) const;
  /// Answers a request that refuse(), or the HTTP server, refused.
  static void send_refusal(const HttpRequest& request, const ApiError& refusal,
                           const std::shared_ptr<Reply>& reply) {
    send_error(request, to_response(refusal), reply);
  }
  /// Answers a request that was not refused; an error is an answer, too.
  void handle(HttpRequest request, const std::shared_ptr<Reply>& reply);
  /// Logs and counts an answer.
  void note(const HttpRecord& record);
  /// Logs the fields of a request that had no effect.
  void note_ignored(const std::string& id, const std::vector<std::string>& fields) const;
  /// /ready says no from now on.
  void leave() { leaving_ = true; }
  /// Completions are refused (503) from now on.
  void refuse_completions() { refusing_ = true; }
  /// Waits until all stored responses are on disk, if a directory is set.
  void flush_responses() { responses_.flush(); }
  void count_connections(const HttpServer& http) { http_ = &http; }

  [[nodiscard]] const ServiceConfig& config() const { return config_; }
  [[nodiscard]] const winnow::model::ModelSpec& model() const { return model_.spec(); }
  [[nodiscard]] const kvcache::CacheConfig& cache() const { return model_.engine.cache; }
  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] EngineThread& engine() { return engine_; }
  [[nodiscard]] Metrics& metrics() { return metrics_; }
  [[nodiscard]] Log& log() { return log_; }
  [[nodiscard]] const PromptTokens& prompts() const { return *prompts_; }
  /// The model's tool format; ApiError if it is unknown.
  [[nodiscard]] const ToolFormat& tool_format() const;
  /// The model's marks around thoughts; null: unknown or none.
  [[nodiscard]] const ThoughtFormat* thought_format() const { return thought_format_; }
  [[nodiscard]] const ModelTask& task() const { return task_; }
  [[nodiscard]] bool runs_on_cuda() const { return model_.engine.cuda_device.has_value(); }
  /// Special tokens that keep their text in chat answers: they mark calls and thoughts.
  [[nodiscard]] const std::vector<std::int32_t>& marks() const { return marks_; }
  /// The constraint for requested tool calls, null if any text is allowed; ApiError like
  /// constraint().
  [[nodiscard]] std::shared_ptr<const engine::TokenConstraint> tool_constraint(
      const ToolRequest& tools);
  /// The constraint to `header` and a format after it, null for any text; ApiError for a format
  /// that cannot be enforced.
  [[nodiscard]] std::shared_ptr<const engine::TokenConstraint> constraint(
      const AnswerFormat& format, std::string_view header);
  /// The adapter of this name; null for the base model.
  [[nodiscard]] std::shared_ptr<const winnow::model::Lora> adapter(std::string_view name) const;
  /// All adapters, by name.
  [[nodiscard]] const auto& adapters() const { return adapters_; }
  /// Throws ApiError (404) for an unknown model's name; "" is always accepted.
  void check_model(const std::string& name) const;
  /// Throws ApiError (400) for fields that the chat template does not support, or adds them to the
  /// request's ignored fields.
  void check_template_fields(CompletionRequest& request) const;
  /// Maximum tokens of prompt and answer.
  [[nodiscard]] int context() const { return context_; }

 private:
  void route(HttpRequest& request, const std::shared_ptr<Reply>& reply);
  void find_tool_format();
  void find_thought_format();
  void find_marks();
  void load_adapters();
  void warn_of_other_base(const std::string& lora, const winnow::model::Lora& adapter) const;
  void check_effort(const CompletionRequest& request) const;
  [[nodiscard]] std::shared_ptr<const engine::TokenConstraint> hold_to(
      std::shared_ptr<grammar::TokenGrammar> grammar, const std::string& param) const;
  [[nodiscard]] bool is_preflight(const HttpRequest& request) const;
  void complete(const HttpRequest& request, const std::shared_ptr<Reply>& reply, bool chat);
  void start(CompletionRequest completion, const std::string& id,
             const std::shared_ptr<Reply>& reply);
  [[nodiscard]] bool is_served(std::string_view name) const;
  [[nodiscard]] ApiError not_served(std::string_view name) const;  // names --model-alias
  static void send_error(const HttpRequest& request, HttpResponse response,
                         const std::shared_ptr<Reply>& reply);
  void messages(const HttpRequest& request, const std::shared_ptr<Reply>& reply);
  void respond(const HttpRequest& request, const std::shared_ptr<Reply>& reply);
  static ResponseStore open_responses(const ServiceConfig& config, Log& log);
  [[nodiscard]] HttpResponse stored_response(const HttpRequest& request);
  [[nodiscard]] HttpResponse count_tokens(const HttpRequest& request) const;
  [[nodiscard]] HttpResponse count_response_tokens(const HttpRequest& request);
  [[nodiscard]] HttpResponse health() const;
  [[nodiscard]] HttpResponse ready() const;
  [[nodiscard]] RouterView router_view() const;
  [[nodiscard]] HttpResponse load() const;
  [[nodiscard]] HttpResponse properties() const;
  [[nodiscard]] HttpResponse tokenizer_info() const;
  [[nodiscard]] HttpResponse show_metrics() const;
  [[nodiscard]] HttpResponse models(std::string_view id) const;

  ServiceConfig config_;
  const engine::LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const std::optional<ChatTemplate>& chat_template_;
  EngineThread& engine_;
  Log& log_;
  Metrics metrics_;
  GrammarCache grammars_;
  ResponseStore responses_;
  ModelTask task_;
  std::map<std::string, std::shared_ptr<const winnow::model::Lora>, std::less<>> adapters_;
  const ToolFormat* tool_format_ = nullptr;        // null: unknown
  const ThoughtFormat* thought_format_ = nullptr;  // null: no thoughts
  std::vector<std::int32_t> marks_;
  int context_;
  std::optional<PromptTokens> prompts_;
  std::int64_t started_;  // seconds since 1970
  std::atomic<const HttpServer*> http_ = nullptr;
  std::atomic<bool> refusing_ = false;
  std::atomic<bool> leaving_ = false;
};

/// The answer of /health for a server that refuses requests, or whose engine failed.
HttpResponse health_of(bool refusing, std::string_view failure);

/// An answer in JSON.
HttpResponse json_response(const nlohmann::ordered_json& value);

/// Seconds since 1970.
std::int64_t unix_time();

}  // namespace winnow::server
