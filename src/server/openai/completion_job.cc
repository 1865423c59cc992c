#include "server/openai/completion_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "server/http/api_error.h"
#include "server/openai/choice.h"
#include "server/openai/completion_json.h"
#include "server/openai/held_tokens.h"
#include "server/openai/prepared_prompt.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using engine::FinishReason;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string event_text(const Json& value) {
  return "data: " + dump(value) + "\n\n";
}

// Everything but start() runs as the reply's work, one piece at a time.
class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  CompletionJob(Service& service, CompletionRequest request, const std::string& id,
                std::shared_ptr<Reply> reply);
  void start();

 private:
  // What one prompt's steps are delivered to.
  class Sink : public StepSink {
   public:
    Sink(std::shared_ptr<CompletionJob> job, int prompt) : job_(std::move(job)), prompt_(prompt) {}
    void deliver(StepResult result) override {
      job_->reply_->run([job = job_, prompt = prompt_, result = std::move(result)] {
        job->consume_or_fail(prompt, result);
      });
    }

   private:
    std::shared_ptr<CompletionJob> job_;
    int prompt_;
  };

  // An answer and what is told of it at its end.
  struct Slot {
    Choice choice;
    std::optional<Piece> piece = {};  // that became certain and is not yet put
    std::string text = {};
    std::vector<ScoredToken> tokens = {};
    std::vector<std::int32_t> token_ids = {};  // if they are asked for; of a stream, not yet told
    std::optional<Clock::time_point> last_token = {};
    bool begun = false;  // its first piece was streamed
    std::optional<TextFrame> frame = {};
  };

  void submit();
  void consume_or_fail(int prompt, const StepResult& result);
  void consume(int prompt, const StepResult& result);
  void take_prompt_token(int prompt, const engine::TokenEvent& event);
  void take_token(int index, const engine::TokenEvent& event);
  void observe_token(Slot& slot);
  void take_usage(int sample, const engine::CacheUsage& usage);
  void put_pieces();
  void put(int index, Piece piece);
  void put_trace(const engine::CacheTrace& trace);
  void flush();
  void finish();
  void fail(const ApiError& error);
  void close(std::string_view outcome);
  void cancel();
  [[nodiscard]] Json scores(std::span<const ScoredToken> tokens) const;

  Service& service_;
  CompletionRequest request_;
  std::shared_ptr<Reply> reply_;
  AnswerHead head_;
  std::string piece_begin_;  // of a stream
  Clock::time_point start_ = Clock::now();
  std::vector<PreparedPrompt> prompts_;        // their requests are handed on
  std::vector<EngineThread::Ticket> tickets_;  // by prompt
  std::vector<Slot> slots_;                    // by prompt, then by sample
  HeldTokens held_;
  AnswerUsage usage_;
  std::string events_;  // of a stream, not yet written
  int open_ = 0;        // samples that the engine works on
  bool closed_ = false;
};

CompletionJob::CompletionJob(Service& service, CompletionRequest request, const std::string& id,
                             std::shared_ptr<Reply> reply)
    : service_(service),
      request_(std::move(request)),
      reply_(std::move(reply)),
      head_{.id = fmt::format("{}-{}", request_.chat ? "chatcmpl" : "cmpl", id),
            .created = unix_time(),
            .model = service.config().model_name,
            .chat = request_.chat},
      piece_begin_(piece_begin(head_)),
      held_(service.cache(), service.model().layer_count() * service.model().attention().kv_heads) {
}

void CompletionJob::start() {
  prompts_ = prepare_prompts(service_, request_);
  for (const PreparedPrompt& prompt : prompts_) {
    usage_.prompt_tokens += static_cast<int>(prompt.request.prompt.size());
    for (int sample = 0; sample < request_.n; ++sample) {
      slots_.push_back({Choice(service_.tokenizer(), request_.stop, request_.logprobs >= 0)});
    }
  }
  open_ = static_cast<int>(slots_.size());
  submit();
  reply_->on_gone([job = shared_from_this()] {
    job->cancel();
    job->close("cancelled");
  });
  if (request_.stream) {
    reply_->begin({.content_type = "text/event-stream; charset=utf-8",
                   .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                   .body = {}});
  }
  if (request_.echo) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const std::size_t prompt = i / static_cast<std::size_t>(request_.n);
      put(static_cast<int>(i), slots_[i].choice.echo(prompts_[prompt].text));
      slots_[i].choice.echo_token(prompts_[prompt].first_token, std::nullopt, {});
    }
    flush();
  }
}

void CompletionJob::submit() {
  std::vector<EngineThread::Submission> submissions;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    submissions.push_back({std::move(prompts_[i].request),
                           std::make_shared<Sink>(shared_from_this(), static_cast<int>(i))});
  }
  tickets_ = service_.engine().submit(std::move(submissions));
}

void CompletionJob::consume_or_fail(int prompt, const StepResult& result) {
  if (closed_) {
    return;
  }
  try {
    consume(prompt, result);
  } catch (const ApiError& error) {
    fail(error);
  } catch (const std::exception& error) {
    service_.log().write(LogLevel::error, "failure", {{"id", head_.id}, {"message", error.what()}});
    fail(ApiError(500, "the server failed; its log says how", {}, "internal"));
  }
}

void CompletionJob::consume(int prompt, const StepResult& result) {
  if (result.shut_down) {
    throw shutting_down();
  }
  if (!result.failure.empty()) {
    throw Error(result.failure);
  }
  for (const engine::CacheTrace& trace : result.traces) {
    put_trace(trace);
  }
  for (const engine::TokenEvent& event : result.events) {
    if (event.finish == FinishReason::out_of_memory || event.finish == FinishReason::not_numbers) {
      put_pieces();  // of the tokens before
      flush();
    }
    if (event.finish == FinishReason::out_of_memory) {
      throw ApiError(400, "the cache has no room for so long a sequence (--kv-gib)",
                     request_.chat ? "messages" : "prompt", "context_length_exceeded");
    }
    if (event.finish == FinishReason::not_numbers) {
      throw Error(std::string(engine::kNotNumbers));
    }
    if (event.of_prompt) {
      take_prompt_token(prompt, event);
    } else {
      take_token(prompt * request_.n + event.sample, event);
    }
  }
  put_pieces();
  for (const auto& [sample, usage] : result.ended) {
    take_usage(sample, usage);
  }
  flush();
  if (open_ == 0) {
    finish();
  }
}

void CompletionJob::take_prompt_token(int prompt, const engine::TokenEvent& event) {
  for (int sample = 0; sample < request_.n; ++sample) {
    slots_[static_cast<std::size_t>(prompt * request_.n + sample)].choice.echo_token(
        event.token, event.logprob, event.alternatives);
  }
}

void CompletionJob::take_token(int index, const engine::TokenEvent& event) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.choice.ended()) {
    return;
  }
  if (event.token >= 0) {
    observe_token(slot);
  }
  if (request_.return_token_ids && event.finish != FinishReason::stop &&
      service_.tokenizer().has_token(event.token)) {  // others would be refused in a prompt
    slot.token_ids.push_back(event.token);
  }
  Piece& piece = slot.piece ? *slot.piece : slot.piece.emplace();
  piece.append(slot.choice.accept(event));
  if (slot.choice.stopped() && event.finish == FinishReason::none) {
    service_.engine().stop(tickets_[static_cast<std::size_t>(index / request_.n)], event.sample);
  }
}

void CompletionJob::observe_token(Slot& slot) {
  if (slot.last_token) {
    service_.metrics().between_tokens.observe(seconds_since(*slot.last_token));
  } else {
    service_.metrics().first_token.observe(seconds_since(start_));
  }
  slot.last_token = Clock::now();
  service_.metrics().count_token();
}

void CompletionJob::take_usage(int sample, const engine::CacheUsage& usage) {
  usage_.add(usage);
  if (sample == 0) {
    usage_.reused_tokens += usage.reused_tokens;
  }
  --open_;
}

// What one or more tokens made certain goes out together.
void CompletionJob::put_pieces() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (auto piece = std::exchange(slots_[i].piece, std::nullopt)) {
      put(static_cast<int>(i), std::move(*piece));
    }
  }
}

// Adds to an answer: to its text, or to the events that are written next.
void CompletionJob::put(int index, Piece piece) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (!request_.stream) {
    slot.text += piece.text;
    std::ranges::move(piece.tokens, std::back_inserter(slot.tokens));
    return;
  }
  if (piece.empty() && !slot.choice.ended() && (slot.begun || !request_.chat)) {
    return;
  }
  const bool only_text =
      slot.begun && !slot.choice.ended() && slot.token_ids.empty() && request_.logprobs < 0;
  if (only_text) {
    if (!slot.frame) {
      slot.frame = text_frame(head_, index);
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
  const Json delta = delta_json({.index = index,
                                 .text = piece.text,
                                 .logprobs = scores(piece.tokens),
                                 .token_ids = token_ids,
                                 .finish = slot.choice.finish()},
                                request_.chat, !slot.begun);
  slot.begun = true;
  events_ += fmt::format("data: {}{}{}\n\n", piece_begin_, dump(delta), kPieceEnd);
}

void CompletionJob::put_trace(const engine::CacheTrace& trace) {
  Json event = answer_json(head_, Json::array(), /*stream=*/true);
  event["winnow_trace"] = held_.next(trace);
  events_ += event_text(event);
}

void CompletionJob::flush() {
  if (!events_.empty()) {
    reply_->write(std::exchange(events_, {}));
  }
}

void CompletionJob::finish() {
  for (const Slot& slot : slots_) {
    usage_.completion_tokens += slot.choice.generated();
  }
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
    Json choices = Json::array();
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      choices.push_back(choice_json({.index = static_cast<int>(i),
                                     .text = slots_[i].text,
                                     .logprobs = scores(slots_[i].tokens),
                                     .token_ids = slots_[i].token_ids,
                                     .finish = slots_[i].choice.finish()},
                                    request_.chat));
    }
    Json answer = answer_json(head_, std::move(choices), /*stream=*/false);
    add_usage(usage_, answer);
    reply_->send({.headers = {}, .body = dump(answer)});
  }
  close("completed");
}

void CompletionJob::fail(const ApiError& error) {
  cancel();
  if (request_.stream) {  // its head says 200 already
    reply_->write(event_text(to_json(error)));
    reply_->end();
  } else {
    reply_->send(to_response(error));
  }
  close("failed");
}

void CompletionJob::close(std::string_view outcome) {
  if (std::exchange(closed_, true)) {
    return;
  }
  service_.metrics().count_request(outcome, usage_);
  service_.metrics().whole_request.observe(seconds_since(start_));
  service_.log().write(LogLevel::debug, "completion",
                       {{"id", head_.id},
                        {"outcome", outcome},
                        {"prompt_tokens", usage_.prompt_tokens},
                        {"completion_tokens", usage_.completion_tokens},
                        {"reused_tokens", usage_.reused_tokens},
                        {"kv_bytes", usage_.kv_bytes},
                        {"seconds", seconds_since(start_)}});
}

void CompletionJob::cancel() {
  for (const EngineThread::Ticket ticket : tickets_) {
    service_.engine().cancel(ticket);
  }
}

Json CompletionJob::scores(std::span<const ScoredToken> tokens) const {
  if (request_.logprobs < 0) {
    return {};
  }
  return logprobs_json(tokens, service_.tokenizer(), request_.chat);
}

}  // namespace

void start_completion(Service& service, CompletionRequest request, const std::string& id,
                      const std::shared_ptr<Reply>& reply) {
  std::make_shared<CompletionJob>(service, std::move(request), id, reply)->start();
}

}  // namespace winnow::server
