// Output of a completion to its client: pieces of streams, and whole answers.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "checkpoint/json_text.h"
#include "server/http/api_error.h"
#include "server/openai/completion_job_parts.h"
#include "server/openai/field_table.h"
#include "server/service.h"

namespace winnow::server {
namespace {

std::string event_text(const nlohmann::ordered_json& value) {
  return "data: " + dump(value) + "\n\n";
}

}  // namespace

// All output that one or more tokens made final is sent together.
void CompletionJob::put_pieces() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (auto piece = std::exchange(slots_[i].piece, std::nullopt)) {
      put(static_cast<int>(i), std::move(*piece));
    }
  }
}

// Ids are unique by request, answer and call.
std::string CompletionJob::call_id(int index, int call) const {
  std::string id = fmt::format("call_{}_{}_{}", head_.id, index, call);
  if (!service_.tool_format().has_short_ids()) {
    return id;
  }
  constexpr std::string_view kDigits = "0123456789abcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kLength = 9;
  std::string digits;
  for (std::size_t hash = std::hash<std::string>{}(id); digits.size() < kLength;
       hash /= kDigits.size()) {
    digits += kDigits[hash % kDigits.size()];
  }
  return digits;
}

bool CompletionJob::Slot::called() const {
  return !calls.is_null() &&
         (choice.stop().empty() ||
          !json_or_discarded<Json>(
               calls.back()["function"]["arguments"].get_ref<const std::string&>())
               .is_discarded());
}

// Extracts tool calls from a piece's text: returns them as a stream's deltas, one for each call,
// and adds them to the answer. null: there are none.
nlohmann::ordered_json CompletionJob::take_calls(int index, Piece& piece) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (!slot.parser) {
    return nullptr;
  }
  int call = slot.parser->calls() - 1;
  ToolParser::Part part = slot.parser->push(piece.text);
  if (slot.choice.ended()) {
    ToolParser::Part last = slot.parser->finish();
    part.content += last.content;
  }
  piece.text = std::move(part.content);
  Json deltas = nullptr;
  for (ToolDelta& delta : part.deltas) {
    if (!delta.name.empty()) {
      ++call;
      const std::string id = call_id(index, call);
      slot.calls.push_back({{"id", id},
                            {"type", "function"},
                            {"function", {{"name", delta.name}, {"arguments", ""}}}});
      deltas.push_back(slot.calls.back());
      deltas.back()["function"]["arguments"] = delta.arguments;
      Json& begun = deltas.back();
      begun["index"] = call;
    } else if (!deltas.is_null()) {  // of the same call: clients may read one entry alone
      deltas.back()["function"]["arguments"].get_ref<std::string&>() += delta.arguments;
    } else {
      deltas.push_back({{"index", call}, {"function", {{"arguments", delta.arguments}}}});
    }
    auto& arguments = slot.calls.back()["function"]["arguments"].get_ref<std::string&>();
    arguments += delta.arguments;
  }
  return deltas;
}

nlohmann::ordered_json CompletionJob::piece_json(int index, const Piece& piece, const Json& calls,
                                                 std::span<const std::int32_t> token_ids) const {
  const Slot& slot = slots_[static_cast<std::size_t>(index)];
  return delta_json({.index = index,
                     .text = piece.text,
                     .logprobs = scores(piece.tokens),
                     .token_ids = token_ids,
                     .finish = slot.choice.finish(),
                     .tool_calls = calls,
                     .called = slot.called(),
                     .thought = piece.thought,
                     .stop = slot.choice.stop()},
                    request_.chat, !slot.begun);
}

// Appends to an answer: to its text, or to the events that are written next.
void CompletionJob::put(int index, Piece piece) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  const Json calls = take_calls(index, piece);
  if (!request_.stream) {
    if (request_.keep_pieces) {
      slot.pieces.push_back(piece_json(index, piece, calls, {}));
    }
    slot.text += piece.text;
    slot.thought += piece.thought;
    std::ranges::move(piece.tokens, std::back_inserter(slot.tokens));
    return;
  }
  if (piece.empty() && calls.is_null() && !slot.choice.ended() && (slot.begun || !request_.chat)) {
    return;
  }
  const bool only_text = calls.is_null() && piece.thought.empty() && slot.begun &&
                         !slot.choice.ended() && slot.token_ids.empty() && request_.logprobs < 0 &&
                         !request_.continuous_usage;
  if (only_text) {
    if (!slot.frame) {
      slot.frame = text_frame(head_, index, piece_end_);
    }
    const auto& [before, behind] = *slot.frame;
    events_ += "data: ";
    events_ += before;
    append_quoted(piece.text, events_);
    events_ += behind;
    events_ += "\n\n";
    return;
  }
  const std::vector<std::int32_t> token_ids = std::exchange(slot.token_ids, {});
  const Json delta = piece_json(index, piece, calls, token_ids);
  slot.begun = true;
  if (request_.continuous_usage) {
    AnswerUsage usage = usage_;
    count_tokens(usage);
    events_ += fmt::format("data: {}{}],\"usage\":{}}}\n\n", piece_begin_, dump(delta),
                           dump(usage_json(usage)));
  } else {
    events_ += fmt::format("data: {}{}{}\n\n", piece_begin_, dump(delta), piece_end_);
  }
}

void CompletionJob::put_trace(const engine::CacheTrace& trace) {
  Json event = answer_json(head_, Json::array(), /*stream=*/true);
  event["winnow_trace"] = held_.next(trace);
  if (request_.include_usage) {
    event["usage"] = nullptr;
  }
  events_ += event_text(event);
}

void CompletionJob::flush() {
  if (!events_.empty()) {
    reply_->write(std::exchange(events_, {}));
  }
}

// Counts the tokens of all answers so far.
void CompletionJob::count_tokens(AnswerUsage& usage) const {
  for (const Slot& slot : slots_) {
    usage.completion_tokens += slot.choice.generated();
    usage.reasoning_tokens += slot.thought_tokens;
  }
}

// The answers to return: the majority's, or for each prompt the n with the highest mean
// log-probability.
std::vector<const CompletionJob::Slot*> CompletionJob::best_slots() const {
  if (vote_) {
    return {&slots_[vote_->chosen()]};
  }
  std::vector<const Slot*> best;
  const auto samples = static_cast<std::ptrdiff_t>(request_.samples());
  for (const Slot& slot : slots_) {
    best.push_back(&slot);
  }
  const auto mean = [](const Slot* slot) {
    return slot->logprob / std::max(1, slot->choice.generated());
  };
  std::vector<const Slot*> told;
  for (auto begin = best.begin(); begin != best.end(); begin += samples) {
    if (request_.samples() > request_.n) {
      std::stable_sort(begin, begin + samples,
                       [&](const Slot* a, const Slot* b) { return mean(a) > mean(b); });
    }
    told.insert(told.end(), begin, begin + request_.n);
  }
  return told;
}

nlohmann::ordered_json CompletionJob::whole_answer() const {
  Json choices = Json::array();
  for (const Slot* slot : best_slots()) {
    const auto index = choices.size();
    choices.push_back(choice_json({.index = static_cast<int>(index),
                                   .text = slot->text,
                                   .logprobs = scores(slot->tokens),
                                   .token_ids = slot->token_ids,
                                   .finish = slot->choice.finish(),
                                   .tool_calls = slot->calls,
                                   .called = slot->called(),
                                   .thought = slot->thought,
                                   .stop = slot->choice.stop()},
                                  request_.chat));
    if (request_.keep_pieces) {
      choices.back()["pieces"] = slot->pieces;
    }
    if (request_.prompt_logprobs >= 0 && !request_.chat) {
      choices.back()["prompt_logprobs"] = prompt_logprobs_json(
          prompt_scores_[index / static_cast<std::size_t>(request_.n)], service_.tokenizer());
    }
  }
  Json answer = answer_json(head_, std::move(choices), /*stream=*/false);
  if (request_.prompt_logprobs >= 0 && request_.chat) {
    answer["prompt_logprobs"] = prompt_logprobs_json(prompt_scores_[0], service_.tokenizer());
  }
  add_usage(usage_, answer);
  if (vote_) {
    answer["winnow"]["votes"] = vote_->json();
  }
  return answer;
}

void CompletionJob::finish() {
  count_tokens(usage_);
  if (request_.stream) {
    if (request_.include_usage) {
      Json last = answer_json(head_, Json::array(), /*stream=*/true);
      add_usage(usage_, last);
      events_ += event_text(last);
    }
    events_ += "data: [DONE]\n\n";
    flush();
    reply_->end();
  } else {
    HttpResponse response{.headers = {}, .body = dump(whole_answer())};
    add_ignored(request_.ignored, response);
    reply_->send(std::move(response));
  }
  close("completed");
}

nlohmann::ordered_json CompletionJob::scores(std::span<const ScoredToken> tokens) const {
  if (request_.logprobs < 0) {
    return {};
  }
  return logprobs_json(tokens, service_.tokenizer(), request_.chat);
}

}  // namespace winnow::server
