#include "server/openai/completion_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/error_text.h"
#include "server/http/api_error.h"
#include "server/openai/completion_job_parts.h"
#include "server/openai/field_table.h"
#include "server/service.h"

namespace winnow::server {
namespace {

using engine::FinishReason;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

CompletionJob::CompletionJob(Service& service, CompletionRequest request, const std::string& id,
                             std::shared_ptr<Reply> reply)
    : service_(service),
      request_(std::move(request)),
      reply_(std::move(reply)),
      head_{.id = fmt::format("{}-{}", request_.chat ? "chatcmpl" : "cmpl", id),
            .created = unix_time(),
            .model = request_.model.empty() ? service.config().model_name : request_.model,
            .chat = request_.chat},
      piece_begin_(piece_begin(head_)),
      piece_end_(request_.include_usage ? kPieceEndWithoutUsage : kPieceEnd),
      held_(service.cache(), service.model().cached_heads()) {
  if (request_.votes) {
    vote_.emplace(*request_.votes, service.model().cached_heads());
  }
}

void CompletionJob::start() {
  const std::size_t prompts = std::max<std::size_t>(request_.prompts.size(), 1);
  service_.engine().require_places(static_cast<int>(prompts) * request_.samples(), prompts);
  prompts_ = prepare_prompts(service_, request_);
  for (const PreparedPrompt& prompt : prompts_) {
    usage_.prompt_tokens += static_cast<int>(prompt.request.prompt.size());
    for (int sample = 0; sample < request_.samples(); ++sample) {
      slots_.push_back({Choice(service_.tokenizer(), choice_options())});
      if (request_.prompt.tools.may_call() && request_.format.kind == AnswerFormat::Kind::text) {
        slots_.back().parser.emplace(service_.tool_format(), request_.prompt.tools);
      }
      const ThoughtFormat* format = service_.thought_format();
      if (request_.chat && format != nullptr &&
          (request_.thoughts.apart || format->has_channels())) {
        slots_.back().thoughts = make_thought_parser(*format, prompt.thoughts);
      }
    }
  }
  prompt_scores_.resize(prompts_.size());
  open_ = static_cast<int>(slots_.size());
  submit();
  reply_->on_gone([job = shared_from_this()] {
    job->cancel();
    job->close("cancelled");
  });
  if (request_.stream) {
    HttpResponse head{.content_type = "text/event-stream; charset=utf-8",
                      .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}},
                      .body = {}};
    add_ignored(request_.ignored, head);
    reply_->begin(std::move(head));
  }
  if (request_.echo) {
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      const std::size_t prompt = i / static_cast<std::size_t>(request_.samples());
      put(static_cast<int>(i), slots_[i].choice.echo(prompts_[prompt].text));
      slots_[i].choice.echo_token(prompts_[prompt].first_token, std::nullopt, {});
    }
    flush();
  }
}

ChoiceOptions CompletionJob::choice_options() const {
  return {.stops = request_.stop,
          .keep_stop = request_.include_stop,
          .min_tokens = request_.rules.min_tokens,
          .skip_special = request_.skip_special_tokens,
          .marks = request_.chat ? service_.marks() : std::vector<std::int32_t>(),
          .scored = request_.logprobs >= 0};
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
    service_.log().write(LogLevel::error, "failure",
                         {{"id", head_.id}, {"message", error_text(error)}});
    fail(ApiError(500, "internal server error; see the server's log", {}, "internal"));
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
    check(event);
    if (event.of_prompt) {
      take_prompt_token(prompt, event);
    } else {
      take_token(prompt * request_.samples() + event.sample, event);
    }
  }
  put_pieces();
  if (vote_) {
    count_votes();
  }
  for (const auto& [sample, usage] : result.ended) {
    take_usage(sample, usage);
  }
  flush();
  if (open_ == 0) {
    finish();
  }
}

// Throws the error of an answer that cannot continue.
void CompletionJob::check(const engine::TokenEvent& event) {
  if (event.finish != FinishReason::out_of_memory && event.finish != FinishReason::not_numbers &&
      event.finish != FinishReason::no_token) {
    return;
  }
  put_pieces();  // of the tokens so far
  flush();
  if (event.finish == FinishReason::out_of_memory) {
    throw ApiError(400, "the sequence does not fit into the cache (--kv-gib)",
                   request_.prompt_field, "context_length_exceeded");
  }
  if (event.finish == FinishReason::no_token) {
    throw ApiError(400, std::string(engine::kNoTokenLeft), {}, "no_token_left");
  }
  throw Error(std::string(engine::kNotNumbers));
}

void CompletionJob::take_prompt_token(int prompt, const engine::TokenEvent& event) {
  // logprobs and prompt_logprobs may ask for different numbers of alternatives.
  const auto first = [&event](int count) {
    const auto most = std::min(event.alternatives.size(), static_cast<std::size_t>(count));
    return std::vector(event.alternatives.begin(),
                       event.alternatives.begin() + static_cast<std::ptrdiff_t>(most));
  };
  if (request_.prompt_logprobs >= 0) {
    prompt_scores_[static_cast<std::size_t>(prompt)].push_back(
        {.token = event.token,
         .logprob = event.logprob,
         .alternatives = first(request_.prompt_logprobs),
         .rank = event.rank});
  }
  if (!request_.echo || request_.chat || request_.logprobs < 0) {
    return;
  }
  for (int sample = 0; sample < request_.samples(); ++sample) {
    slots_[static_cast<std::size_t>(prompt * request_.samples() + sample)].choice.echo_token(
        event.token, event.logprob, first(request_.logprobs));
  }
}

void CompletionJob::take_token(int index, const engine::TokenEvent& event) {
  Slot& slot = slots_[static_cast<std::size_t>(index)];
  if (slot.choice.ended()) {
    return;
  }
  if (event.token >= 0) {
    observe_token(slot);
    slot.logprob += event.logprob;
  }
  if (request_.return_token_ids && event.finish != FinishReason::stop &&
      service_.tokenizer().has_token(event.token)) {  // a prompt with other tokens would be refused
    slot.token_ids.push_back(event.token);
  }
  Piece& piece = slot.piece ? *slot.piece : slot.piece.emplace();
  Piece next = slot.choice.accept(event);
  take_thought(slot, next);
  piece.append(std::move(next));
  if (slot.choice.stopped() && event.finish == FinishReason::none) {
    service_.engine().stop(tickets_[static_cast<std::size_t>(index / request_.samples())],
                           event.sample);
  }
}

// Extracts the model's reasoning from a piece's text.
void CompletionJob::take_thought(Slot& slot, Piece& piece) const {
  if (!slot.thoughts) {
    return;
  }
  const bool thought = slot.thoughts->thinks();
  ThoughtParser::Part part = slot.thoughts->push(piece.text);
  if (slot.choice.ended()) {
    const ThoughtParser::Part last = slot.thoughts->finish();
    part.thought += last.thought;
    part.content += last.content;
  }
  slot.thought_tokens += thought || slot.thoughts->thinks() ? 1 : 0;
  piece.text = std::move(part.content);
  if (!request_.thoughts.apart) {
    piece.text.insert(0, part.thought);
  } else if (request_.thoughts.told) {
    piece.thought = std::move(part.thought);
  }
}

// Cancels chains that can no longer change the vote.
void CompletionJob::count_votes() {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    const Slot& slot = slots_[i];
    if (slot.choice.ended() && !vote_->has_ended(i)) {
      vote_->end(i, slot.text, slot.choice.finish(), slot.choice.generated());
    }
  }
  if (!decided_ && vote_->is_decided()) {
    decided_ = true;
    cancel();
  }
}

void CompletionJob::observe_token(Slot& slot) {
  if (slot.last_token) {
    service_.metrics().between_tokens.observe_since(*slot.last_token);
  } else {
    service_.metrics().first_token.observe_since(start_);
  }
  slot.last_token = Clock::now();
  service_.metrics().count_token();
}

void CompletionJob::take_usage(int sample, const engine::CacheUsage& usage) {
  usage_.add(usage);
  if (vote_) {
    vote_->count(static_cast<std::size_t>(sample), usage.reads);
  }
  if (sample == 0) {
    usage_.reused_tokens += usage.reused_tokens;
  }
  --open_;
}

void CompletionJob::fail(const ApiError& error) {
  cancel();
  if (request_.stream) {  // its head already says 200
    reply_->write("data: " + dump(to_json(error)) + "\n\n");
    reply_->cut();
  } else {
    reply_->send(to_response(error));
  }
  close(error.status() < 500 ? "refused" : "failed");
}

void CompletionJob::close(std::string_view outcome) {
  if (std::exchange(closed_, true)) {
    return;
  }
  service_.metrics().count_request(outcome, usage_);
  const bool erred = outcome == "failed" || outcome == "refused";
  for (const Slot& slot : slots_) {
    const FinishReason reason = slot.choice.finish();
    service_.metrics().count_sample(reason == FinishReason::stop     ? "stop"
                                    : reason == FinishReason::length ? "length"
                                    : erred                          ? "error"
                                                                     : "abort");
  }
  service_.metrics().whole_request.observe_since(start_);
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

void start_completion(Service& service, CompletionRequest request, const std::string& id,
                      const std::shared_ptr<Reply>& reply) {
  std::make_shared<CompletionJob>(service, std::move(request), id, reply)->start();
}

}  // namespace winnow::server
