// A running completion request.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/engine_thread.h"
#include "server/http/http.h"
#include "server/openai/choice.h"
#include "server/openai/completion_json.h"
#include "server/openai/completion_request.h"
#include "server/openai/held_tokens.h"
#include "server/openai/prepared_prompt.h"
#include "server/openai/reasoning/thought_parser.h"
#include "server/openai/tools/tool_parser.h"
#include "server/openai/votes.h"

namespace winnow::server {

class ApiError;
class Service;

/// Everything but start() runs as the reply's work, one piece at a time. completion_job.cc handles
/// the engine's events; completion_answer.cc sends them to the client.
class CompletionJob : public std::enable_shared_from_this<CompletionJob> {
 public:
  CompletionJob(Service& service, CompletionRequest request, const std::string& id,
                std::shared_ptr<Reply> reply);
  void start();

 private:
  using Json = nlohmann::ordered_json;
  using Clock = std::chrono::steady_clock;

  // Receives the results of one prompt's steps.
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

  // An answer, with the data for its end.
  struct Slot {
    Choice choice;
    std::optional<Piece> piece = {};  // final, but not yet sent
    std::string text = {};
    std::vector<ScoredToken> tokens = {};
    std::vector<std::int32_t> token_ids = {};  // if requested; in a stream, those not yet sent
    std::optional<Clock::time_point> last_token = {};
    bool begun = false;  // its first piece was streamed
    std::optional<TextFrame> frame = {};
    double logprob = 0.0;                          // sum over all of its tokens
    std::optional<ToolParser> parser = {};         // finds tool calls
    Json calls = nullptr;                          // null: none
    Json pieces = Json::array();                   // of a stream, if they are kept
    std::unique_ptr<ThoughtParser> thoughts = {};  // finds thoughts
    std::string thought = {};
    int thought_tokens = 0;

    /// Whether it ends with tool calls; an answer that a stop string cut does not count.
    [[nodiscard]] bool called() const;
  };

  [[nodiscard]] ChoiceOptions choice_options() const;
  void submit();
  void consume_or_fail(int prompt, const StepResult& result);
  void consume(int prompt, const StepResult& result);
  void check(const engine::TokenEvent& event);
  void take_prompt_token(int prompt, const engine::TokenEvent& event);
  void take_token(int index, const engine::TokenEvent& event);
  void take_thought(Slot& slot, Piece& piece) const;
  void observe_token(Slot& slot);
  void count_votes();
  void take_usage(int sample, const engine::CacheUsage& usage);
  void put_pieces();
  void put(int index, Piece piece);
  Json take_calls(int index, Piece& piece);
  [[nodiscard]] Json piece_json(int index, const Piece& piece, const Json& calls,
                                std::span<const std::int32_t> token_ids) const;
  [[nodiscard]] std::string call_id(int index, int call) const;
  void put_trace(const engine::CacheTrace& trace);
  void flush();
  void count_tokens(AnswerUsage& usage) const;
  [[nodiscard]] std::vector<const Slot*> best_slots() const;
  [[nodiscard]] Json whole_answer() const;
  void finish();
  void fail(const ApiError& error);
  void close(std::string_view outcome);
  void cancel();
  [[nodiscard]] Json scores(std::span<const ScoredToken> tokens) const;

  Service& service_;
  CompletionRequest request_;
  std::shared_ptr<Reply> reply_;
  AnswerHead head_;
  std::string piece_begin_;     // the beginning of a stream's pieces
  std::string_view piece_end_;  // their end
  Clock::time_point start_ = Clock::now();
  std::vector<PreparedPrompt> prompts_;                  // moved to the engine when they start
  std::vector<EngineThread::Ticket> tickets_;            // by prompt
  std::vector<Slot> slots_;                              // by prompt, then by sample
  std::vector<std::vector<ScoredToken>> prompt_scores_;  // by prompt
  HeldTokens held_;
  std::optional<Vote> vote_;
  bool decided_ = false;  // the vote is decided, and open chains are cancelled
  AnswerUsage usage_;
  std::string events_;  // events of a stream, not yet written
  int open_ = 0;        // samples that the engine is working on
  bool closed_ = false;
};

}  // namespace winnow::server
