#include "eval/tasks/choices.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/threads.h"
#include "eval/forcing.h"
#include "eval/log_softmax.h"

namespace winnow::eval {
namespace {

// A choice as the model reads it; the continuation begins at token `first_scored`.
struct Tokens {
  std::vector<std::int32_t> all;
  std::size_t first_scored = 0;
};

Tokens tokens_of(const Tokenizer& tokenizer, const Choice& choice) {
  const std::size_t end = choice.context.find_last_not_of(' ') + 1;  // 0 when all are spaces
  const std::string context = choice.context.substr(0, end);
  const std::string whole = choice.context + choice.continuation;
  const Tokenizer::EncodeOptions options{.add_special = true, .parse_special = false};
  Tokens tokens{tokenizer.encode(whole, options), tokenizer.encode(context, options).size()};
  // The first token has no predecessor, and the last must be scored.
  tokens.first_scored = std::clamp<std::size_t>(tokens.first_scored, 1, tokens.all.size() - 1);
  return tokens;
}

std::size_t common_prefix(const std::vector<Tokens>& choices) {
  std::size_t common = choices.front().first_scored;
  for (const Tokens& choice : choices) {
    const auto [a, b] = std::ranges::mismatch(choices.front().all, choice.all);
    common = std::min(
        {common, choice.first_scored, static_cast<std::size_t>(a - choices.front().all.begin())});
  }
  return common;
}

// A question that is being scored: its choices begin as one sequence and fork where they differ.
struct OpenQuestion {
  const ChoiceQuestion* question = nullptr;
  std::vector<Tokens> choices;
  std::vector<std::size_t> sequences;  // by choice; one for all until they fork
  std::vector<double> logprobs;
};

class Scoring {
 public:
  Scoring(const engine::LoadedModel& model, const Tokenizer& tokenizer, Journal& journal)
      : model_(model), tokenizer_(tokenizer), journal_(journal) {}

  // Scores all of these together.
  void run(std::span<const ChoiceQuestion> questions) {
    std::vector<OpenQuestion> open;
    std::size_t longest = 1;
    std::size_t sequences = 0;
    for (const ChoiceQuestion& question : questions) {
      if (journal_.find(question.id) == nullptr && prepare(question, open)) {
        for (const Tokens& choice : open.back().choices) {
          longest = std::max(longest, choice.all.size());
        }
        sequences += open.back().choices.size();
      }
    }
    if (open.empty()) {
      return;
    }
    // The last question's trunk is open together with all choices.
    Forcing forcing(model_, static_cast<int>(sequences) + 1, static_cast<int>(longest));
    feed_shared(forcing, open);
    part(forcing, open);
    score(forcing, open);
    for (const OpenQuestion& one : open) {
      record(forcing, one);
    }
  }

 private:
  bool prepare(const ChoiceQuestion& question, std::vector<OpenQuestion>& open) {
    OpenQuestion one{.question = &question,
                     .choices = {},
                     .sequences = {},
                     .logprobs = std::vector<double>(question.choices.size())};
    for (const Choice& choice : question.choices) {
      one.choices.push_back(tokens_of(tokenizer_, choice));
      const int positions = model_.spec().max_positions;
      if (one.choices.back().all.size() > static_cast<std::size_t>(positions)) {
        journal_.add(question.id,
                     {{"skipped", fmt::format("{} tokens are more than {} positions",
                                              one.choices.back().all.size(), positions)}});
        return false;
      }
    }
    open.push_back(std::move(one));
    return true;
  }

  static void feed_shared(Forcing& forcing, std::vector<OpenQuestion>& open) {
    for (OpenQuestion& one : open) {
      // The last shared token's logits predict the first differing tokens, so each choice feeds it.
      const std::size_t shared = std::max<std::size_t>(1, common_prefix(one.choices)) - 1;
      const auto& tokens = one.choices.front().all;
      const auto longest = std::ranges::max(one.choices, {}, [](const Tokens& choice) {
                             return choice.all.size();
                           }).all.size();
      const kvcache::SequenceLimits limits{static_cast<int>(one.choices.front().first_scored),
                                           static_cast<int>(longest)};
      one.sequences.push_back(forcing.open(
          {tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(shared)}, limits, shared));
    }
    for (auto shares = forcing.plan(); !shares.empty(); shares = forcing.plan()) {
      forcing.step(shares);
    }
  }

  static void part(Forcing& forcing, std::vector<OpenQuestion>& open) {
    for (OpenQuestion& one : open) {
      const std::size_t trunk = one.sequences.front();
      const std::size_t shared = forcing.tokens(trunk).size();
      one.sequences.clear();
      for (const Tokens& choice : one.choices) {
        one.sequences.push_back(
            forcing.fork(trunk, std::span(choice.all).subspan(shared), choice.first_scored - 1));
      }
      forcing.close(trunk);
    }
  }

  static void score(Forcing& forcing, std::vector<OpenQuestion>& open) {
    for (auto shares = forcing.plan(); !shares.empty(); shares = forcing.plan()) {
      const auto rows = forcing.step(shares);
      std::vector<double> logprobs(rows.size());
      parallel_each(rows.size(), [&](std::size_t i, int) {
        const auto tokens = forcing.tokens(rows[i].sequence);
        if (rows[i].position + 1 < tokens.size()) {
          const auto target = static_cast<std::size_t>(tokens[rows[i].position + 1]);
          logprobs[i] = LogSoftmax(rows[i].logits)(rows[i].logits[target]);
        }
      });
      for (std::size_t i = 0; i < rows.size(); ++i) {
        for (OpenQuestion& one : open) {
          const auto found = std::ranges::find(one.sequences, rows[i].sequence);
          if (found != one.sequences.end()) {
            one.logprobs[static_cast<std::size_t>(found - one.sequences.begin())] += logprobs[i];
          }
        }
      }
    }
  }

  void record(const Forcing& forcing, const OpenQuestion& one) {
    const ChoiceQuestion& question = *one.question;
    std::vector<std::size_t> characters;
    std::vector<double> per_character;
    std::size_t longest = 0;
    for (std::size_t i = 0; i < one.choices.size(); ++i) {
      characters.push_back(choice_characters(question.choices[i].continuation));
      per_character.push_back(one.logprobs[i] / static_cast<double>(characters.back()));
      longest = one.choices[i].all.size() > one.choices[longest].all.size() ? i : longest;
    }
    const auto best = [](const std::vector<double>& scores) {
      return static_cast<std::size_t>(std::ranges::max_element(scores) - scores.begin());
    };
    const engine::CacheUsage usage = forcing.usage(one.sequences[longest]);
    Json record{{"logprobs", one.logprobs},
                {"characters", characters},
                {"answer", question.answer},
                {"correct", best(one.logprobs) == question.answer},
                {"correct_norm", best(per_character) == question.answer},
                {"tokens", one.choices[longest].all.size()},
                {"compression_ratio", usage.compression_ratio()},
                {"kv_bytes", usage.bytes}};
    if (!question.group.empty()) {
      record["group"] = question.group;
    }
    journal_.add(question.id, record);
  }

  const engine::LoadedModel& model_;
  const Tokenizer& tokenizer_;
  Journal& journal_;
};

}  // namespace

void score_choices(const engine::LoadedModel& model, const Tokenizer& tokenizer,
                   std::span<const ChoiceQuestion> questions, const ChoiceOptions& options,
                   Journal& journal) {
  require(options.batch >= 1, "--batch {}: at least 1 is needed", options.batch);
  Scoring scoring(model, tokenizer, journal);
  const auto batch = static_cast<std::size_t>(options.batch);
  for (std::size_t first = 0; first < questions.size(); first += batch) {
    const std::size_t count = std::min(batch, questions.size() - first);
    scoring.run(questions.subspan(first, count));
    if (options.on_progress && !options.on_progress(static_cast<std::int64_t>(first + count))) {
      return;
    }
  }
}

std::size_t choice_characters(std::string_view continuation) {
  continuation.remove_prefix(continuation.starts_with(' ') ? 1 : 0);
  const auto starts_character = [](char byte) {
    return (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  };
  return std::max<std::size_t>(
      1, static_cast<std::size_t>(std::ranges::count_if(continuation, starts_character)));
}

ChoiceSummary summarize_choices(const Journal& journal, std::span<const ChoiceQuestion> questions) {
  ChoiceSummary summary;
  Mean correct;
  Mean normalised;
  Mean ratio;
  Mean bytes;
  for (const Json* record : answered_records(journal, questions, summary.skipped)) {
    ++summary.questions;
    correct.add(record->at("correct").get<bool>() ? 1.0 : 0.0);
    normalised.add(record->at("correct_norm").get<bool>() ? 1.0 : 0.0);
    ratio.add(record->at("compression_ratio").get<double>());
    bytes.add(record->at("kv_bytes").get<double>());
  }
  summary.accuracy = correct.estimate();
  summary.accuracy_norm = normalised.estimate();
  summary.compression_ratio = ratio.count() > 0 ? ratio.mean() : 1.0;
  summary.kv_bytes = bytes.mean();
  return summary;
}

Json to_json(const ChoiceSummary& summary) {
  return {{"accuracy", summary.accuracy.mean},
          {"accuracy_error", summary.accuracy.error},
          {"accuracy_norm", summary.accuracy_norm.mean},
          {"accuracy_norm_error", summary.accuracy_norm.error},
          {"questions", summary.questions},
          {"skipped", summary.skipped},
          {"compression_ratio", summary.compression_ratio},
          {"kv_bytes", summary.kv_bytes}};
}

}  // namespace winnow::eval
