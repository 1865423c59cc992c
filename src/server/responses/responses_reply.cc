#include "server/responses/responses_reply.h"

#include <fmt/format.h>

#include <utility>

#include "checkpoint/json_text.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;

Json responses_usage(const Json& usage) {
  return {{"input_tokens", usage.at("prompt_tokens")},
          {"input_tokens_details",
           {{"cached_tokens", usage.at("prompt_tokens_details").at("cached_tokens")},
            {"cache_write_tokens", 0}}},  // cache writes at a higher price: none here
          {"output_tokens", usage.at("completion_tokens")},
          {"output_tokens_details", usage.at("completion_tokens_details")},
          {"total_tokens", usage.at("total_tokens")}};
}

Json text_part(std::string_view kind, const std::string& text) {
  Json part{{"type", kind}, {"text", text}};
  if (kind == "output_text") {
    part["annotations"] = Json::array();
    part["logprobs"] = Json::array();
  }
  return part;
}

Json reasoning_item(const std::string& id) {
  return {{"id", id},
          {"type", "reasoning"},
          {"summary", Json::array()},
          {"content", Json::array()},
          {"status", "in_progress"}};
}

Json message_item(const std::string& id) {
  return {{"id", id},
          {"type", "message"},
          {"status", "in_progress"},
          {"role", "assistant"},
          {"content", Json::array()}};
}

Json call_item(const std::string& id, const Json& call) {
  return {{"id", id},
          {"type", "function_call"},
          {"status", "in_progress"},
          {"call_id", call.at("id")},
          {"name", call.at("function").at("name")},
          {"arguments", ""}};
}

void append_text(const Json& item, Json& text) {
  text = (text.is_null() ? "" : text.get<std::string>()) +
         item["content"][0]["text"].get<std::string>();
}

// The assistant's chat message for output items.
Json message_of(const Json& output) {
  Json message{{"role", "assistant"}, {"content", ""}};
  for (const Json& item : output) {
    if (item["type"] == "reasoning") {
      append_text(item, message["reasoning_content"]);
    } else if (item["type"] == "message") {
      append_text(item, message["content"]);
    } else {
      message["tool_calls"].push_back(
          {{"id", item["call_id"]},
           {"type", "function"},
           {"function", {{"name", item["name"]}, {"arguments", item["arguments"]}}}});
    }
  }
  return message;
}

}  // namespace

Json ResponsesReply::response(std::string_view status, Json output) const {
  Json response{{"id", id_},
                {"object", "response"},
                {"created_at", head_.at("created")},
                {"status", status},
                {"error", nullptr},
                {"incomplete_details", nullptr},
                {"model", head_.at("model")},
                {"output", std::move(output)}};
  response.update(told_back_);
  response["usage"] = usage_.is_null() ? Json() : responses_usage(usage_);
  return response;
}

// Builds the same items as a stream does: both use the same code.
Json ResponsesReply::whole(const Json& completion) {
  is_stream_ = false;
  head_ = {{"created", completion.at("created")}, {"model", completion.at("model")}};
  usage_ = completion.at("usage");
  for (const Json& piece : completion.at("choices").at(0).at("pieces")) {
    tell_piece(piece);
  }
  Json answer = ended();
  answer["winnow"] = completion.at("winnow");
  keep(answer);
  return answer;
}

Json ResponsesReply::error(int /*status*/, const Json& error) {
  return {{"error", error}};
}

void ResponsesReply::tell_event(std::string_view type, Json data) {
  if (!is_stream_) {
    return;
  }
  Json whole{{"type", type}, {"sequence_number", sequence_++}};
  whole.update(data);
  event(type, whole);
}

void ResponsesReply::tell_error(const Json& error) {
  if (head_.is_null()) {
    head_ = {{"created", 0}, {"model", ""}};
  }
  Json failed = response("failed", output_);
  failed["error"] = {{"code", "server_error"}, {"message", error.at("message")}};
  tell_event("response.failed", {{"response", std::move(failed)}});
}

void ResponsesReply::tell(const Json& chunk) {
  if (chunk.is_null()) {
    end_response();
    return;
  }
  if (head_.is_null()) {
    begin_response(chunk);
  }
  if (chunk.contains("usage") && !chunk["usage"].is_null()) {
    usage_ = chunk["usage"];
  }
  for (const Json& choice : chunk.at("choices")) {
    tell_piece(choice);
  }
}

void ResponsesReply::tell_piece(const Json& choice) {
  const auto item_id = [&](const char* kind) {
    return fmt::format("{}_{}_{}", kind, id_, output_.size());
  };
  const Json& delta = choice.at("delta");
  if (const auto scores = choice.find("logprobs"); scores != choice.end() && scores->is_object()) {
    tokens_.push(scores->at("content"));
  }
  if (delta.contains("reasoning_content")) {
    begin_item("reasoning", reasoning_item(item_id("rs")), "reasoning_text");
    tell_delta("response.reasoning_text.delta", delta["reasoning_content"].get<std::string>());
  }
  if (delta.contains("content") && delta["content"].is_string() && delta["content"] != "") {
    begin_item("message", message_item(item_id("msg")), "output_text");
    tell_delta("response.output_text.delta", delta["content"].get<std::string>());
  }
  if (delta.contains("tool_calls")) {
    tell_calls(delta["tool_calls"]);
  }
  if (!choice.at("finish_reason").is_null()) {
    finish_ = choice["finish_reason"];
  }
}

void ResponsesReply::begin_response(const Json& chunk) {
  head_ = {{"created", chunk.at("created")}, {"model", chunk.at("model")}};
  for (const char* type : {"response.created", "response.in_progress"}) {
    tell_event(type, {{"response", response("in_progress", Json::array())}});
  }
}

// Continues the open item if it is of this kind, or begins a new one.
void ResponsesReply::begin_item(std::string_view kind, Json item, std::string_view part) {
  if (open_ == kind && kind != "function_call") {
    return;
  }
  end_item();
  open_ = kind;
  part_ = part;
  output_.push_back(std::move(item));
  tell_event("response.output_item.added", {{"output_index", index()}, {"item", output_.back()}});
  if (!part_.empty()) {
    tell_event("response.content_part.added", {{"item_id", output_.back()["id"]},
                                               {"output_index", index()},
                                               {"content_index", 0},
                                               {"part", text_part(part_, "")}});
  }
}

void ResponsesReply::end_item(std::string_view status) {
  if (open_.empty()) {
    return;
  }
  Json& item = output_.back();
  const Json place{{"item_id", item["id"]}, {"output_index", index()}};
  if (open_ == "function_call") {
    item["arguments"] = text_;
    Json done = place;
    done["name"] = item["name"];
    done["arguments"] = text_;
    tell_event("response.function_call_arguments.done", std::move(done));
  } else {
    item["content"].push_back(text_part(part_, text_));
    if (part_ == "output_text") {
      item["content"][0]["logprobs"] = logprobs_;
    }
    Json done = place;
    done["content_index"] = 0;
    Json part = done;
    done["text"] = text_;
    if (part_ == "output_text") {
      done["logprobs"] = std::exchange(logprobs_, Json::array());
    }
    tell_event(fmt::format("response.{}.done", part_), std::move(done));
    part["part"] = item["content"][0];
    tell_event("response.content_part.done", std::move(part));
  }
  item["status"] = status;
  tell_event("response.output_item.done", {{"output_index", index()}, {"item", item}});
  open_.clear();
  text_.clear();
}

void ResponsesReply::tell_delta(std::string_view type, const std::string& text) {
  Json data{{"item_id", output_.back()["id"]}, {"output_index", index()}};
  if (!part_.empty()) {
    data["content_index"] = 0;
  }
  data["delta"] = text;
  if (!part_.empty()) {  // a call's tokens are not those of its reported text
    Json tokens = tokens_.take(text);
    if (part_ == "output_text") {
      logprobs_.insert(logprobs_.end(), tokens.begin(), tokens.end());
      data["logprobs"] = std::move(tokens);
    }
  }
  text_ += text;
  tell_event(type, std::move(data));
}

void ResponsesReply::tell_calls(const Json& calls) {
  for (const Json& call : calls) {
    const Json& function = call.at("function");
    if (function.contains("name")) {
      begin_item("function_call", call_item(fmt::format("fc_{}_{}", id_, output_.size()), call),
                 "");
    }
    if (const Json& arguments = function.at("arguments"); arguments != "") {
      tell_delta("response.function_call_arguments.delta", arguments.get<std::string>());
    }
  }
}

// The final response: the open item is marked incomplete if the answer was cut off.
nlohmann::ordered_json ResponsesReply::ended() {
  const bool is_cut = finish_ == "length";
  const std::string_view status = is_cut ? "incomplete" : "completed";
  if (output_.empty()) {  // an empty answer becomes an empty message
    begin_item("message", message_item(fmt::format("msg_{}_0", id_)), "output_text");
  }
  const bool breaks_call = open_ == "function_call" &&
                           json_or_discarded<Json>(text_).is_discarded();  // by a stop string
  end_item(breaks_call ? "incomplete" : status);
  Json whole = response(status, output_);
  if (is_cut) {
    whole["incomplete_details"] = {{"reason", "max_output_tokens"}};
  }
  return whole;
}

void ResponsesReply::keep(const Json& response) const {
  if (done_) {
    done_(response, message_of(output_));
  }
}

void ResponsesReply::end_response() {
  Json whole = ended();
  keep(whole);
  tell_event(finish_ == "length" ? "response.incomplete" : "response.completed",
             {{"response", std::move(whole)}});
}

}  // namespace winnow::server
