// Information about the server and its model.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/whole_file.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"
#include "ops/kv_page.h"
#include "server/base_model.h"
#include "server/http/api_error.h"
#include "server/sampling_defaults.h"
#include "server/service.h"
#include "winnow/version.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

}  // namespace

HttpResponse json_response(const Json& value) {
  return {.headers = {}, .body = dump(value)};
}

HttpResponse health_of(bool refusing, std::string_view failure) {
  const bool ok = !refusing && failure.empty();
  HttpResponse response = json_response({{"status", ok                ? "ok"
                                                    : failure.empty() ? "shutting down"
                                                                      : "the engine has failed"}});
  response.status = ok ? 200 : 503;
  return response;
}

HttpResponse Service::health() const {
  return health_of(refusing_, engine_.failure());
}

// Tells routers and probes early that the server is about to leave.
HttpResponse Service::ready() const {
  HttpResponse response = health();
  if (response.status == 200 && leaving_) {
    response = json_response({{"status", "draining"}});
    response.status = 503;
  }
  return response;
}

HttpResponse Service::show_metrics() const {
  HttpLoad load{.ready = ready().status == 200, .dropped_log_lines = log_.dropped()};
  if (const HttpServer* http = http_) {
    load.connections = http->connections();
    load.refused_connections = http->refused_connections();
  }
  return {.content_type = "text/plain; version=0.0.4; charset=utf-8",
          .headers = {},
          .body = metrics_.render(engine_.report(), load, config_.most, router_view())};
}

RouterView Service::router_view() const {
  const kvcache::CacheShape shape = model_.cache_shape();
  const ops::PageLayout page = shape.page_layout(model_.engine.cache.format);
  RouterView view{{.tokens = config_.block_tokens, .bytes = page.page_bytes()}};
  view.blocks.bytes = view.blocks.bytes * static_cast<std::size_t>(shape.held_heads()) *
                      static_cast<std::size_t>(config_.block_tokens) / ops::kPageEntries;
  if (config_.vllm_metrics) {
    view.vllm_name = config_.model_name;
  }
  return view;
}

// The server's load, in vLLM's format.
HttpResponse Service::load() const {
  const EngineReport report = engine_.report();
  return json_response({{"server_load", report.open_requests}});
}

// Properties that llama.cpp's clients read first.
HttpResponse Service::properties() const {
  const SamplingOptions& sampling = config_.limits.sampling;
  return json_response(
      {{"default_generation_settings",
        {{"n_ctx", context_},
         {"params",
          {{"temperature", sampling.temperature},
           {"top_p", sampling.top_p},
           {"top_k", sampling.top_k},
           {"min_p", sampling.min_p},
           {"repeat_penalty", sampling.repetition_penalty}}}}},
       {"total_slots", config_.most.sequences},
       {"model_alias", config_.model_name},
       {"modalities", {{"vision", false}, {"audio", false}}},
       {"tool_format", tool_format_ == nullptr ? Json() : Json(tool_format_->name())},
       {"reasoning_format", thought_format_ == nullptr ? Json() : Json(thought_format_->name)},
       {"build_info", "winnow " WINNOW_VERSION}});
}

// The tokenizer's configuration file of the model.
HttpResponse Service::tokenizer_info() const {
  const std::filesystem::path directory = config_.model_directory;
  if (!std::filesystem::exists(directory / "tokenizer_config.json")) {
    throw ApiError(404, "this model has no tokenizer_config.json", {}, "not_found");
  }
  const std::string text = read_whole_file(directory / "tokenizer_config.json");
  Json info =
      json_from<Json>(with_quoted_constants(text).value_or(text));  // Python's NaN and Infinity
  for (const char* name : {"bos_token", "eos_token", "unk_token", "pad_token"}) {
    if (const auto token = info.find(name); token != info.end() && token->is_object()) {
      *token = token->value("content", "");  // clients that ask for their ids expect it so
    }
  }
  info["vocab_size"] = tokenizer_.vocab_size();
  if (std::filesystem::exists(directory / "chat_template.jinja")) {
    info["chat_template"] = read_whole_file(directory / "chat_template.jinja");
  }
  return json_response(info);
}

void Service::load_adapters() {
  for (const std::string& lora : config_.loras) {
    const std::size_t at = lora.find('=');
    require(at != std::string::npos && at > 0 && at + 1 < lora.size(),
            "--lora {}: expected NAME=DIR", lora);
    require(model_.team == nullptr,
            "--lora {}: adapters run on one rank only, without --tensor-parallel", lora);
    const std::string name = lora.substr(0, at);
    require(!is_served(name), "--lora {}: there is a model {} already", lora, name);
    auto adapter = winnow::model::Lora::load(lora.substr(at + 1), model());
    try {
      engine_.prepare(*adapter);
    } catch (const Error& error) {
      fail("--lora {}: {}", lora, error.what());
    }
    warn_of_other_base(lora, *adapter);
    adapters_[name] = std::move(adapter);
  }
}

// An adapter of a model with the same shapes loads, but its sums make no sense.
void Service::warn_of_other_base(const std::string& lora,
                                 const winnow::model::Lora& adapter) const {
  std::vector<std::string> names = config_.model_aliases;
  names.push_back(config_.model_name);
  if (const std::string& text = model().config.text; !text.empty()) {
    const auto original = parse_json(text, "config.json").value("_name_or_path", nlohmann::json());
    names.push_back(original.is_string() ? original.get<std::string>() : "");
  }
  if (!may_be_model(adapter.base_model(), config_.model_directory, names)) {
    log_.write(LogLevel::warn, "lora",
               {{"message",
                 fmt::format("--lora {}: its adapter_config.json says that it was made for {}; the "
                             "model here is {}, and if that is another one, answers are wrong "
                             "(--model-alias {} if it is the same)",
                             lora, adapter.base_model(), name_of_model(config_.model_directory),
                             adapter.base_model())}});
  }
}

std::shared_ptr<const winnow::model::Lora> Service::adapter(std::string_view name) const {
  const auto found = adapters_.find(name);
  return found == adapters_.end() ? nullptr : found->second;
}

HttpResponse Service::models(std::string_view id) const {
  const kvcache::CacheConfig& cache = model_.engine.cache;
  const auto page = model_.cache_shape().page_layout(cache.format).page_bytes();
  const double entry_bytes = static_cast<double>(page) / ops::kPageEntries;
  Json entry{{"id", config_.model_name},
             {"object", "model"},
             {"type", "model"},
             {"display_name", config_.model_name},
             {"created", started_},
             {"owned_by", "winnow"},
             {"max_model_len", context_},
             {"winnow",
              {{"cache", kvcache::rule_name(cache.rule)},
               {"kv_dtype", ops::format_name(cache.format)},
               {"window", cache.traits().marks ? cache.window : -1},
               {"layers", model().layer_count()},
               {"cache_layers", model().attention_before(model().layer_count())},
               {"kv_heads", model().attention().kv_heads},
               {"entry_bytes", entry_bytes},
               {"parameters", model_.parameters},
               {"sampling", to_json(config_.limits.sampling)},
               {"chat", chat_template_.has_value()}}}};
  if (id.empty()) {
    Json list = Json::array({entry});
    for (const std::string& alias : config_.model_aliases) {
      list.push_back(entry);
      list.back()["id"] = alias;
      list.back()["root"] = config_.model_name;
    }
    for (const auto& [name, _] : adapters_) {
      list.push_back(entry);
      list.back()["id"] = name;
      list.back()["parent"] = config_.model_name;
    }
    const Json last = list.back()["id"];
    return json_response({{"object", "list"},
                          {"data", std::move(list)},
                          {"has_more", false},  // this and the rest are Anthropic's list format
                          {"first_id", config_.model_name},
                          {"last_id", last}});
  }
  if (!is_served(id)) {
    throw not_served(id);
  }
  entry["id"] = id;
  return json_response(entry);
}

}  // namespace winnow::server
