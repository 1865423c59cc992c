#include "train/self_generated.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "answers/answer_check.h"
#include "base/error.h"
#include "base/random.h"
#include "checkpoint/atomic_file.h"
#include "checkpoint/json_text.h"
#include "engine/engine.h"

namespace winnow::train {
namespace {

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

class SelfGeneration {
 public:
  SelfGeneration(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                 const SelfGeneratedOptions& options, const std::filesystem::path& file)
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
    if (!go_on) {  // documents after an unfinished one
      std::erase_if(texts_, [](const auto& text) { return !text.second.finished; });
      write_finished();
    }
    if (counts_.kept > 0) {  // if stopped before the first document, keeps the existing file
      file_.commit();
    }
    return counts_;
  }

 private:
  struct Text {
    engine::RequestId request = 0;
    std::vector<std::int32_t> tokens;
    bool finished = false;
  };

  [[nodiscard]] const DocumentPrompt* prompt_of(std::int64_t document) const {
    const auto& prompts = options_.prompts;
    return prompts.empty() ? nullptr
                           : &prompts[static_cast<std::size_t>(document) % prompts.size()];
  }

  void submit(std::int64_t document) {
    const DocumentPrompt* prompt = prompt_of(document);
    engine::Request request;
    request.prompt = prompt == nullptr ? std::vector<std::int32_t>{*spec_.bos_token}
                                       : tokenizer_.encode(prompt->text);
    request.max_tokens = options_.max_tokens;
    request.sampling = options_.sampling;
    request.sampling.seed =
        mix64(options_.sampling.seed ^ mix64(static_cast<std::uint64_t>(document)));
    request.stop_tokens = spec_.eos_tokens;
    const engine::RequestId id = engine_.submit(std::move(request));
    texts_[document].request = id;
    documents_[id] = document;
  }

  void take(const engine::TokenEvent& event) {
    Text& text = texts_.at(documents_.at(event.request));
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
    text.finished = true;
    engine_.take_usage(event.request, event.sample);
    documents_.erase(event.request);
  }

  void write_finished() {
    for (auto first = texts_.begin(); first != texts_.end() && first->second.finished;
         first = texts_.erase(first)) {
      const std::string written = tokenizer_.decode(first->second.tokens, /*skip_special=*/true);
      const DocumentPrompt* prompt = prompt_of(first->first);
      ++counts_.finished;
      if (prompt != nullptr && prompt->answer && !states(written, *prompt->answer)) {
        continue;
      }
      const nlohmann::ordered_json line =
          prompt == nullptr
              ? nlohmann::ordered_json{{"text", written}}
              : nlohmann::ordered_json{{"prompt", prompt->text}, {"completion", written}};
      file_.write(json_text(line) + "\n");
      ++counts_.kept;
    }
  }

  const model::ModelSpec& spec_;
  const Tokenizer& tokenizer_;
  const SelfGeneratedOptions& options_;
  std::size_t in_flight_;
  engine::Engine engine_;
  AtomicFile file_;

  std::int64_t submitted_ = 0;
  SelfGeneratedCounts counts_;
  std::map<std::int64_t, Text> texts_;  // by document
  std::map<engine::RequestId, std::int64_t> documents_;
};

}  // namespace

SelfGeneratedCounts write_self_generated(const engine::LoadedModel& model,
                                         const Tokenizer& tokenizer,
                                         const SelfGeneratedOptions& options,
                                         const std::filesystem::path& file) {
  return SelfGeneration(model, tokenizer, options, file).run();
}

}  // namespace winnow::train
