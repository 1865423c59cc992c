// The cost of a JSON Schema: tokens per second of a full batch with and without one.
// constraint_benchmark TOKENIZER_DIRECTORY cpu|cuda 8b|1b|tiny [OUT.json]: a Llama of this shape
// with random weights and the tokenizer's vocabulary. Answers never end, so that all steps have the
// same number of tokens. Rounds with and without a schema alternate.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/random.h"
#include "base/stopwatch.h"
#include "engine/engine.h"
#include "grammar/json_schema.h"
#include "grammar/token_grammar.h"
#include "server/openai/grammar_constraint.h"
#include "tokenizer/tokenizer.h"

namespace winnow {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRounds = 5;  // the first is not counted
constexpr int kSteps = 200;
constexpr int kPrompt = 64;
constexpr double kPrepareSeconds = 0.08;  // as the server does
constexpr std::int32_t kEnd = 0;          // ends an answer

struct Form {
  const char* name;
  const char* schema;
};
constexpr Form kForms[] = {
    {"a long string",
     R"({"type": "object", "properties": {"text": {"type": "string", "minLength": 4000}},
         "required": ["text"], "additionalProperties": false})"},
    {"many objects",
     R"({"type": "array", "minItems": 400, "items": {"type": "object", "properties": {
         "name": {"type": "string", "maxLength": 40}, "age": {"type": "integer"},
         "tags": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 8}},
         "required": ["name", "age", "tags"], "additionalProperties": false}})"},
};

model::ModelSpec spec_of(std::string_view shape, int vocab) {
  const bool large = shape == "8b";
  require(large || shape == "1b" || shape == "tiny", "shape {} is none of 8b, 1b, tiny", shape);
  const Json sizes = shape == "tiny" ? Json{256, 2, 4, 2, 64, 512}
                     : large         ? Json{4096, 32, 32, 8, 128, 14336}
                                     : Json{2048, 16, 32, 8, 64, 8192};
  return model::parse_spec(Json{
      {"model_type", "llama"},
      {"hidden_size", sizes[0]},
      {"num_hidden_layers", sizes[1]},
      {"num_attention_heads", sizes[2]},
      {"num_key_value_heads", sizes[3]},
      {"head_dim", sizes[4]},
      {"intermediate_size", sizes[5]},
      {"vocab_size", (vocab + 255) / 256 * 256},
      {"max_position_embeddings", 8192},
      {"tie_word_embeddings", !large},
      {"rms_norm_eps", 1e-5}}.dump());
}

std::shared_ptr<const grammar::Vocabulary> vocabulary_of(const Tokenizer& tokenizer, int vocab) {
  std::vector<std::string> bytes(static_cast<std::size_t>(vocab));
  for (std::int32_t token = 0; token < tokenizer.vocab_size(); ++token) {
    if (tokenizer.has_token(token)) {
      bytes[static_cast<std::size_t>(token)] = tokenizer.token_bytes(token, /*skip_special=*/true);
    }
  }
  return std::make_shared<const grammar::Vocabulary>(std::move(bytes));
}

struct Work {
  int batch = 64;
  double temperature = 0.0;
  std::shared_ptr<const engine::TokenConstraint> constraint;  // or null
};

// Tokens per second while all sequences decode.
double run(engine::Engine& engine, const Work& work, int vocab, std::uint64_t seed) {
  Random random(seed);
  std::vector<engine::RequestId> ids;
  for (int i = 0; i < work.batch; ++i) {
    engine::Request request;
    for (int k = 0; k < kPrompt; ++k) {
      request.prompt.push_back(static_cast<std::int32_t>(random.uniform() * vocab));
    }
    request.max_tokens = 4 * kSteps;
    request.sampling.temperature = work.temperature;
    request.sampling.seed = random.bits();
    request.constraint = work.constraint;
    ids.push_back(engine.submit(std::move(request)));
  }
  std::size_t tokens = 0;
  while (tokens != ids.size()) {  // until a step gives every sequence a token
    tokens = engine.step().size();
  }
  tokens = 0;
  Stopwatch clock;
  for (int step = 0; step < kSteps; ++step) {
    for (const engine::TokenEvent& event : engine.step()) {
      require(event.finish == engine::FinishReason::none, "an answer has ended");
      ++tokens;
    }
  }
  const double seconds = clock.seconds();
  require(tokens == ids.size() * kSteps, "{} tokens in {} steps", tokens, kSteps);
  std::ranges::for_each(ids, [&](engine::RequestId id) { engine.cancel(id); });
  while (!engine.idle()) {
    (void)engine.step();
  }
  return static_cast<double>(tokens) / seconds;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

Json measure(const std::string& directory, bool on_device, std::string_view shape) {
  const auto tokenizer = load_tokenizer(directory);
  const model::ModelSpec spec = spec_of(shape, tokenizer->vocab_size());
  const model::Model model(spec, model::random_weights(spec, DType::bf16, 1));
  const auto vocabulary = vocabulary_of(*tokenizer, spec.vocab);
  engine::EngineConfig config;
  config.max_sequences = 64;
  config.cache.max_bytes = std::size_t{on_device ? 8U : 1U} << 30;
  if (on_device) {
    config.cuda_device = 0;
  }
  const auto backend = engine::make_backend(model, config);
  engine::Engine engine(*backend, config);
  Json rows = Json::array();
  fmt::print(
      "| batch | temperature | form | tokens/s without | with | with / without |\n"
      "|---|---|---|---|---|---|\n");
  for (const Form& form : kForms) {
    const auto grammar = std::make_shared<grammar::TokenGrammar>(
        grammar::json_schema_rules(Json::parse(form.schema)), vocabulary, kPrepareSeconds);
    const auto constraint =
        std::make_shared<const server::GrammarConstraint>(grammar, std::vector<std::int32_t>{kEnd});
    for (const double temperature : {0.0, 1.0}) {
      for (const int batch : {64, 8, 1}) {
        std::vector<double> without;
        std::vector<double> with;
        for (std::uint64_t round = 0; round < kRounds; ++round) {
          without.push_back(run(engine, {batch, temperature, nullptr}, spec.vocab, round));
          with.push_back(run(engine, {batch, temperature, constraint}, spec.vocab, round));
        }
        without.erase(without.begin());
        with.erase(with.begin());
        const double ratio = median(with) / median(without);
        fmt::print("| {} | {} | {} | {:.0f} | {:.0f} | {:.3f} |\n", batch, temperature, form.name,
                   median(without), median(with), ratio);
        rows.push_back({{"batch", batch},
                        {"temperature", temperature},
                        {"form", form.name},
                        {"tokens_per_s_without", without},
                        {"tokens_per_s_with", with},
                        {"ratio_of_medians", ratio}});
      }
    }
  }
  return {{"shape", shape}, {"device", on_device ? "cuda" : "cpu"}, {"rows", rows}};
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) {
  using namespace winnow;
  try {
    const std::string device = argc > 2 ? argv[2] : "";
    require((argc == 4 || argc == 5) && (device == "cpu" || device == "cuda"),
            "usage: constraint_benchmark TOKENIZER_DIRECTORY cpu|cuda 8b|1b|tiny [OUT.json]");
    const Json results = measure(argv[1], device == "cuda", argv[3]);
    if (argc == 5) {
      std::ofstream(argv[4]) << results.dump(1) << "\n";
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "constraint_benchmark: error: {}\n", error.what());
    return 1;
  }
}
