#include "train/self_generated.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "answers/answer_check.h"
#include "base/error.h"
#include "base/random.h"
#include "base/sha256.h"
#include "engine/engine.h"

namespace winnow::train {
namespace {

using nlohmann::ordered_json;

// Number of documents queued or being generated: enough to keep the engine busy, but few enough
// that they do not all finish at the end.
constexpr std::size_t kInFlightOnGpu = 512;
constexpr std::size_t kInFlightOnCpu = 64;

bool states(const std::string& completion, const std::string& answer) {
  std::string stated = answers::stated_answer(completion, /*number=*/false);
  if (stated.empty()) {
    stated = answers::stated_answer(completion, /*number=*/true);
  }
  return answers::answers_agree(stated, answer);
}

std::string digest_of(const std::vector<DocumentPrompt>& prompts) {
  Sha256 digest;
  for (const DocumentPrompt& prompt : prompts) {
    for (const std::string& text : {prompt.text, prompt.answer.value_or("")}) {
      digest.update(fmt::format("{} ", text.size()));
      digest.update(text);
    }
    digest.update(prompt.answer ? "answer" : "");
  }
  return digest.finish();
}

// All that determines the documents. Not their number: a run may go on to more.
ordered_json run_of(const SelfGeneratedOptions& options) {
  const SamplingOptions& sampling = options.sampling;
  ordered_json run = options.run.is_null() ? ordered_json::object() : options.run;
  run.update({{"max_tokens", options.max_tokens},
              {"temperature", sampling.temperature},
              {"top_k", sampling.top_k},
              {"top_p", sampling.top_p},
              {"min_p", sampling.min_p},
              {"repetition_penalty", sampling.repetition_penalty},
              {"frequency_penalty", sampling.frequency_penalty},
              {"presence_penalty", sampling.presence_penalty},
              {"seed", sampling.seed}});
  if (!options.prompts.empty()) {
    run["prompts_sha256"] = digest_of(options.prompts);
  }
  return run;
}

class SelfGeneration {
 public:
  SelfGeneration(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                 const SelfGeneratedOptions& options, DocumentFile& file)
      : spec_(model.spec()),
        tokenizer_(tokenizer),
        options_(options),
        in_flight_(model.engine.cuda_device ? kInFlightOnGpu : kInFlightOnCpu),
        engine_(*model.backend, model.engine),
        file_(file) {
    require(
        !options.prompts.empty() || spec_.bos_token,
        "the model has no beginning-of-text token, so documents need prompts: give --prompts FILE");
  }

  SelfGeneratedCounts run() {
    engine::validate(options_.sampling);  // before the file is touched
    file_.resume(run_of(options_), [this](std::int64_t document, const ordered_json& line) {
      const DocumentPrompt* prompt = prompt_of(document);
      return prompt == nullptr ? line.contains("text")
                               : line.contains("prompt") && line.at("prompt") == prompt->text;
    });
    submitted_ = file_.next();
    counts_.finished = counts_.earlier = file_.next();
    counts_.kept = file_.lines();
    try {
      generate();
    } catch (...) {
      keep_finished();
      throw;
    }
    keep_finished();
    file_.sync();
    return counts_;
  }

 private:
  struct Text {
    std::vector<std::int32_t> tokens = {};
    std::optional<ordered_json> line = {};  // when it is finished; null: it is left out
  };

  void generate() {
    bool go_on = true;
    while (go_on && (submitted_ < options_.documents || !engine_.idle())) {
      while (submitted_ < options_.documents && texts_.size() < in_flight_) {
        submit(submitted_++);
      }
      for (const engine::TokenEvent& event : engine_.step()) {
        take(event);
      }
      write_finished();
      go_on = !options_.on_progress || options_.on_progress(counts_);
    }
  }

  [[nodiscard]] const DocumentPrompt* prompt_of(std::int64_t document) const {
    const auto& prompts = options_.prompts;
    return prompts.empty() ? nullptr
                           : &prompts[static_cast<std::size_t>(document) % prompts.size()];
  }

  void submit(std::int64_t document) {
    Text& text = texts_[document];
    if (const ordered_json* line = file_.finished(document)) {
      text.line = *line;
      ++counts_.earlier;
      return;
    }
    const DocumentPrompt* prompt = prompt_of(document);
    engine::Request request;
    request.prompt = prompt == nullptr ? std::vector<std::int32_t>{*spec_.bos_token}
                                       : tokenizer_.encode(prompt->text);
    request.max_tokens = options_.max_tokens;
    request.sampling = options_.sampling;
    request.sampling.seed =
        mix64(options_.sampling.seed ^ mix64(static_cast<std::uint64_t>(document)));
    request.stop_tokens = spec_.eos_tokens;
    documents_[engine_.submit(std::move(request))] = document;
  }

  void take(const engine::TokenEvent& event) {
    const std::int64_t document = documents_.at(event.request);
    Text& text = texts_.at(document);
    if (event.token >= 0 && event.finish != engine::FinishReason::stop) {
      text.tokens.push_back(event.token);
      ++counts_.tokens;
    }
    if (event.finish == engine::FinishReason::none) {
      return;
    }
    require(event.finish != engine::FinishReason::out_of_memory,
            "the cache has no room for one document, its prompt and {} new tokens: allow it more "
            "memory with --kv-gib",
            text.tokens.size());
    require(event.finish != engine::FinishReason::not_numbers, "{}", engine::kNotNumbers);
    text.line = line_of(document, text.tokens);
    engine_.take_usage(event.request, event.sample);
    documents_.erase(event.request);
  }

  // Null: the document does not state its prompt's answer.
  [[nodiscard]] ordered_json line_of(std::int64_t document,
                                     const std::vector<std::int32_t>& tokens) const {
    const std::string written = tokenizer_.decode(tokens, /*skip_special=*/true);
    const DocumentPrompt* prompt = prompt_of(document);
    if (prompt == nullptr) {
      return {{"text", written}};
    }
    if (prompt->answer && !states(written, *prompt->answer)) {
      return nullptr;
    }
    return {{"prompt", prompt->text}, {"completion", written}};
  }

  void write_finished() {
    for (auto first = texts_.begin(); first != texts_.end() && first->second.line;
         first = texts_.erase(first)) {
      file_.append(*first->second.line);
    }
    counts_.finished = file_.next();
    counts_.kept = file_.lines();
  }

  // Those after an unfinished one are for the next run.
  void keep_finished() {
    for (const auto& [document, text] : texts_) {
      if (text.line) {
        file_.keep(document, *text.line);
      }
    }
  }

  const model::ModelSpec& spec_;
  const Tokenizer& tokenizer_;
  const SelfGeneratedOptions& options_;
  std::size_t in_flight_;
  engine::Engine engine_;
  DocumentFile& file_;

  std::int64_t submitted_ = 0;
  SelfGeneratedCounts counts_;
  std::map<std::int64_t, Text> texts_;  // by document
  std::map<engine::RequestId, std::int64_t> documents_;
};

}  // namespace

SelfGeneratedCounts write_self_generated(const engine::LoadedModel& model,
                                         const Tokenizer& tokenizer,
                                         const SelfGeneratedOptions& options, DocumentFile& file) {
  return SelfGeneration(model, tokenizer, options, file).run();
}

}  // namespace winnow::train
