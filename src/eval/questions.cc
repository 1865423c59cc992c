#include "eval/questions.h"

#include <algorithm>
#include <map>
#include <memory>

#include "api/llm_collector.h"
#include "base/error.h"
#include "engine/engine.h"
#include "engine/read_counter.h"

namespace winnow::eval {
namespace {

// A question in the engine.
struct Open {
  const Question* question = nullptr;
  std::unique_ptr<engine::Collector> collector;
  std::vector<bool> ended;  // by sample, in the engine
};

// The cost of `width` answers together, averaged over groups of them.
Json cost_together(std::span<const engine::CacheReads> traces, int width, double heads) {
  const auto each = static_cast<std::size_t>(width);
  Mean reads;
  Mean peak;
  for (std::size_t first = 0; first + each <= traces.size(); first += each) {
    const auto group = traces.subspan(first, each);
    double sum = 0.0;
    for (const engine::CacheReads& trace : group) {
      sum += static_cast<double>(trace.generated);
    }
    reads.add(sum / heads);
    peak.add(static_cast<double>(engine::peak_entries(group)) / heads);
  }
  return {{"kv_reads", reads.mean()}, {"peak_tokens", peak.mean()}};
}

class Answering {
 public:
  Answering(const engine::LoadedModel& model, const Tokenizer& tokenizer, const Grade& grade,
            const AnswerOptions& options, Journal& journal)
      : model_(model),
        tokenizer_(tokenizer),
        grade_(grade),
        options_(options),
        journal_(journal),
        engine_(*model.backend, engine_config(model, options)) {}

  void run(std::span<const Question> questions) {
    std::size_t next = 0;
    std::int64_t done = 0;
    while (next < questions.size() || !open_.empty()) {
      while (next < questions.size() && open_.size() < static_cast<std::size_t>(options_.batch)) {
        done += submit(questions[next++]) ? 0 : 1;
      }
      done += step();
      if (options_.on_progress && !options_.on_progress(done)) {
        return;
      }
    }
  }

 private:
  static engine::EngineConfig engine_config(const engine::LoadedModel& model,
                                            const AnswerOptions& options) {
    engine::EngineConfig config = model.engine;
    config.max_sequences = std::max(config.max_sequences, options.batch * options.samples);
    return config;
  }

  // False when the question needs no answer.
  bool submit(const Question& question) {
    if (journal_.find(question.id) != nullptr) {
      return false;
    }
    const auto total = static_cast<std::int64_t>(question.prompt.size()) + question.max_tokens;
    if (total > model_.spec().max_positions) {
      Json record = question.facts;
      record["skipped"] =
          fmt::format("{} prompt tokens and {} new ones are more than {} positions",
                      question.prompt.size(), question.max_tokens, model_.spec().max_positions);
      journal_.add(question.id, record);
      return false;
    }
    engine::Request request;
    request.prompt = question.prompt;
    request.max_tokens = question.max_tokens;
    request.samples = options_.samples;
    request.sampling = options_.sampling;
    request.stop_tokens = model_.spec().eos_tokens;
    request.count_reads = true;
    const engine::RequestId id = engine_.submit(std::move(request));
    GenerateOptions generate;
    generate.samples = options_.samples;
    generate.stop = question.stop;
    static const TextCallback kNobody;
    open_[id] = {&question, std::make_unique<engine::Collector>(&tokenizer_, generate, kNobody),
                 std::vector<bool>(static_cast<std::size_t>(options_.samples))};
    return true;
  }

  // Returns the number of questions that were finished.
  std::int64_t step() {
    for (const engine::TokenEvent& event : engine_.step()) {
      Open& open = open_.at(event.request);
      open.collector->accept(event);
      if (event.finish != engine::FinishReason::none) {
        open.ended[static_cast<std::size_t>(event.sample)] = true;
      } else if (open.collector->ended(event.sample)) {
        engine_.stop(event.request, event.sample);  // ended by a stop string
      }
    }
    return std::erase_if(open_, [this](const auto& entry) {
      const auto& [id, open] = entry;
      if (std::ranges::find(open.ended, false) != open.ended.end()) {
        return false;
      }
      journal_.add(open.question->id, record(id, open));
      return true;
    });
  }

  Json record(engine::RequestId id, const Open& open) {
    const Question& question = *open.question;
    const auto heads = static_cast<double>(model_.spec().cached_heads());
    Json answers = Json::array();
    std::vector<engine::CacheReads> traces;
    Mean ratio;
    Mean bytes;
    double prompt_reads = 0.0;
    double reads = 0.0;
    for (Sample& sample : open.collector->take()) {
      const auto index = static_cast<int>(answers.size());
      require(sample.finish_reason != engine::finish_name(engine::FinishReason::out_of_memory),
              "{}: the cache has no room for it: allow it more memory with --kv-gib", question.id);
      require(sample.finish_reason != engine::finish_name(engine::FinishReason::not_numbers),
              "{}: {}", question.id, engine::kNotNumbers);
      Json answer{{"text", sample.text},
                  {"tokens", sample.token_ids.size()},
                  {"finish", sample.finish_reason}};
      answer.update(grade_(question, sample.text));
      answers.push_back(std::move(answer));
      const engine::CacheUsage usage = engine_.take_usage(id, index);
      ratio.add(usage.compression_ratio());
      bytes.add(static_cast<double>(usage.bytes));
      prompt_reads += static_cast<double>(usage.reads.prompt);
      reads += static_cast<double>(usage.reads.generated);
      traces.push_back(usage.reads);
    }
    Json record = question.facts;
    record["prompt_tokens"] = question.prompt.size();
    record["answers"] = std::move(answers);
    record["compression_ratio"] = ratio.mean();
    record["kv_bytes"] = bytes.mean();
    record["prompt_reads"] = prompt_reads / heads;
    record["kv_reads"] = reads / heads;
    record["peak_tokens"] = static_cast<double>(engine::peak_entries(traces)) / heads;
    for (const int width : options_.widths) {
      record["by_width"][std::to_string(width)] = cost_together(traces, width, heads);
    }
    return record;
  }

  const engine::LoadedModel& model_;
  const Tokenizer& tokenizer_;
  const Grade& grade_;
  const AnswerOptions& options_;
  Journal& journal_;
  engine::Engine engine_;
  std::map<engine::RequestId, Open> open_;
};

}  // namespace

void answer_questions(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                      std::span<const Question> questions, const Grade& grade,
                      const AnswerOptions& options, Journal& journal) {
  require(options.batch >= 1, "--batch {}: at least 1 is needed", options.batch);
  require(options.samples >= 1, "--samples {}: at least 1 is needed", options.samples);
  Answering(model, tokenizer, grade, options, journal).run(questions);
}

AnswerSummary summarize_answers(const Journal& journal, std::span<const Question> questions) {
  AnswerSummary summary;
  Mean correct;
  Mean prompt_tokens;
  Mean ratio;
  Mean bytes;
  Mean reads;
  Mean prompt_reads;
  Mean peak;
  for (const Json* record : answered_records(journal, questions, summary.skipped)) {
    ++summary.questions;
    Mean of_question;
    for (const Json& answer : record->at("answers")) {
      of_question.add(answer.at("correct").get<bool>() ? 1.0 : 0.0);
    }
    correct.add(of_question.mean());
    prompt_tokens.add(record->at("prompt_tokens").get<double>());
    ratio.add(record->at("compression_ratio").get<double>());
    bytes.add(record->at("kv_bytes").get<double>());
    reads.add(record->at("kv_reads").get<double>());
    prompt_reads.add(record->at("prompt_reads").get<double>());
    peak.add(record->at("peak_tokens").get<double>());
  }
  summary.accuracy = correct.estimate();
  summary.prompt_tokens = prompt_tokens.mean();
  summary.compression_ratio = ratio.count() > 0 ? ratio.mean() : 1.0;
  summary.kv_bytes = bytes.mean();
  summary.kv_reads = reads.mean();
  summary.prompt_reads = prompt_reads.mean();
  summary.peak_tokens = peak.mean();
  return summary;
}

Estimate mean_grade(const Journal& journal, std::span<const Question> questions, const char* key) {
  std::int64_t skipped = 0;
  Mean mean;
  for (const Json* record : answered_records(journal, questions, skipped)) {
    const Json& answer = record->at("answers").at(0);
    if (answer.contains(key)) {
      mean.add(answer.at(key).get<double>());
    }
  }
  return mean.estimate();
}

Json to_json(const AnswerSummary& summary) {
  const bool is_measured = summary.questions > 0;
  return {{"accuracy", is_measured ? Json(summary.accuracy.mean) : Json()},
          {"accuracy_error", is_measured ? Json(summary.accuracy.error) : Json()},
          {"questions", summary.questions},
          {"skipped", summary.skipped},
          {"prompt_tokens", summary.prompt_tokens},
          {"compression_ratio", summary.compression_ratio},
          {"kv_bytes", summary.kv_bytes},
          {"kv_reads", summary.kv_reads},
          {"prompt_reads", summary.prompt_reads},
          {"peak_tokens", summary.peak_tokens}};
}

}  // namespace winnow::eval
