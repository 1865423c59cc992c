#include "train/probe/probe_trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <chrono>
#include <cmath>
#include <exception>
#include <memory>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/note.h"
#include "base/threads.h"
#include "train/probe/kvzip_scores.h"
#include "train/probe/ridge.h"

namespace winnow::train {
namespace {

using Pieces = std::span<const std::span<const std::int32_t>>;

using Clock = std::chrono::steady_clock;

constexpr std::size_t kHeldOutShare = 20;  // one piece in so many
constexpr auto kKeepEvery = std::chrono::minutes(10);

// Runs the model over repetitions and gives, layer by layer, what attention reads of the text
// [T, hidden] and the scores of its entries [T, kv_heads].
class ScoreSource {
 public:
  using Take = std::function<void(std::size_t layer, ops::Matrix<const float> x,
                                  ops::Matrix<const float> y)>;

  ScoreSource(const engine::LoadedModel& model, int most_tokens)
      : model_(model), runner_(model.backend->make_runner(model.engine, most_tokens)) {
    context_ = {.compute = DType::f32, .workspace = &workspace_};
    for (int layer = 0; layer < model.spec().layer_count(); ++layer) {
      if (model.spec().layer(layer).compresses()) {
        scorers_.emplace(
            layer, KvzipScorer(*model.spec().layer(layer).attention(),
                               model.model.weights().layers[static_cast<std::size_t>(layer)]));
      }
    }
  }

  void read(const Repetition& repetition, const Take& take) {
    const model::AttentionListener listener = [&](const model::AttentionInputs& inputs) {
      if (const auto scorer = scorers_.find(inputs.layer); scorer != scorers_.end()) {
        const ops::Workspace::Scope scope(workspace_);
        const auto heads = static_cast<std::size_t>(model_.spec().attention().kv_heads);
        const ops::Matrix<float> scores(workspace_.take<float>(repetition.length * heads).data(),
                                        repetition.length, heads);
        scorer->second.score(context_, inputs, repetition, scores);
        take(static_cast<std::size_t>(inputs.layer),
             inputs.hidden.slice(repetition.text, repetition.text + repetition.length), scores);
      }
    };
    const auto count = static_cast<int>(repetition.tokens.size());
    const auto sequence = runner_->open({.prompt_tokens = count, .total_tokens = count});
    require(runner_->has_room(runner_->need(*sequence, count)),
            "the cache has no room for {} tokens: take shorter texts, with --length", count);
    engine::SequenceShare share{
        .sequence = sequence.get(), .tokens = repetition.tokens, .logit_rows = 0, .visible = {}};
    share.listener = &listener;
    runner_->forward(std::span(&share, 1), {}, {});
  }

 private:
  const engine::LoadedModel& model_;
  std::unique_ptr<engine::Runner> runner_;
  std::map<int, KvzipScorer> scorers_;  // of the layers that compress
  ops::Workspace workspace_;
  ops::Context context_;
};

// The sums of one KV head over held-out tokens.
struct HeadFit {
  double count = 0.0;
  double sum = 0.0;
  double squares = 0.0;
  double errors = 0.0;

  void add(double score, double predicted) {
    count += 1.0;
    sum += score;
    squares += score * score;
    errors += (score - predicted) * (score - predicted);
  }
  [[nodiscard]] double variance() const { return squares - sum * sum / count; }
};

std::vector<model::LinearScorer> solve_layers(const std::map<std::size_t, RidgeSums>& sums,
                                              std::size_t layers, double penalty) {
  std::vector<model::LinearScorer> scorers(layers);
  parallel_each(layers, [&](std::size_t layer, int) {
    if (const auto found = sums.find(layer); found != sums.end()) {
      scorers[layer] = found->second.solve(penalty);
    }
  });
  return scorers;
}

float predict(const model::LinearScorer& scorer, std::size_t head, std::span<const float> x) {
  const auto weight = std::span(scorer.weight).subspan(head * x.size(), x.size());
  return std::inner_product(x.begin(), x.end(), weight.begin(), scorer.bias[head]);
}

// Trains and measures one probe.
class ProbeTrainer {
 public:
  ProbeTrainer(const engine::LoadedModel& model, const Repeater& repeater, Pieces pieces,
               const ProbeTrainingOptions& options)
      : spec_(model.spec()),
        repeater_(repeater),
        pieces_(pieces),
        options_(options),
        source_(model, static_cast<int>(repeater.size(pieces.front().size()))) {}

  TrainedProbe train() {
    const std::size_t learned = pieces_.size() - held_out_pieces(pieces_.size());
    TrainedProbe probe;
    if (options_.kept != nullptr) {
      sums_ = options_.kept->read(shape_of(static_cast<std::int64_t>(learned)));
    }
    try {
      probe.layers = fit(pieces_.first(learned));
    } catch (...) {
      keep();
      throw;
    }
    keep();
    probe.tokens = tokens_of(pieces_.first(learned));
    probe.fit = measure(pieces_.subspan(learned), probe.layers);
    return probe;
  }

 private:
  static std::int64_t tokens_of(Pieces pieces) {
    return static_cast<std::int64_t>(pieces.size() * pieces.front().size());
  }

  [[nodiscard]] ProbeSumsShape shape_of(std::int64_t learned) const {
    ProbeSumsShape shape{.most_pieces = learned,
                         .layers = {},
                         .inputs = static_cast<std::size_t>(spec_.hidden),
                         .outputs = static_cast<std::size_t>(spec_.attention().kv_heads)};
    for (int layer = 0; layer < spec_.layer_count(); ++layer) {
      if (spec_.layer(layer).compresses()) {
        shape.layers.push_back(static_cast<std::size_t>(layer));
      }
    }
    return shape;
  }

  // A training goes on where its sums cannot be kept.
  void keep() {
    if (options_.kept == nullptr || sums_.pieces == 0 || !whole_) {
      return;
    }
    kept_at_ = Clock::now();
    try {
      options_.kept->write(sums_);
    } catch (const std::exception& error) {
      note(fmt::format("the training's sums are not kept: {}", error.what()));
    }
  }

  void tell(std::int64_t done) const {
    if (options_.on_piece) {
      options_.on_piece(done);
    }
  }

  // Adds the pieces that the sums lack.
  std::vector<model::LinearScorer> fit(Pieces pieces) {
    tell(sums_.pieces);
    for (const auto& piece : pieces.subspan(static_cast<std::size_t>(sums_.pieces))) {
      whole_ = false;
      source_.read(repeater_.repeat(piece),
                   [&](std::size_t layer, ops::Matrix<const float> x, ops::Matrix<const float> y) {
                     sums_.layers.try_emplace(layer, x.cols, y.cols).first->second.add(x, y);
                   });
      ++sums_.pieces;
      whole_ = true;
      tell(sums_.pieces);
      if (Clock::now() - kept_at_ > kKeepEvery) {
        keep();
      }
    }
    return solve_layers(sums_.layers, spec_.layers.size(), options_.penalty);
  }

  ProbeFit measure(Pieces pieces, const std::vector<model::LinearScorer>& layers) {
    ProbeFit result{.tokens = tokens_of(pieces)};
    std::map<std::pair<std::size_t, std::size_t>, HeadFit> heads;
    const ScoreSource::Take compare = [&](std::size_t layer, ops::Matrix<const float> x,
                                          ops::Matrix<const float> y) {
      for (std::size_t t = 0; t < x.rows; ++t) {
        for (std::size_t head = 0; head < y.cols; ++head) {
          result.predicted.push_back(predict(layers[layer], head, x.row(t)));
          heads[{layer, head}].add(y.row(t)[head], result.predicted.back());
        }
      }
    };
    std::int64_t done = sums_.pieces;
    for (const auto& piece : pieces) {
      source_.read(repeater_.repeat(piece), compare);
      tell(++done);
    }
    double errors = 0.0;
    double variance = 0.0;
    for (const auto& [place, head] : heads) {
      errors += head.errors;
      variance += head.variance();
    }
    result.explained = 1.0 - errors / variance;
    std::ranges::sort(result.predicted);
    return result;
  }

  const model::ModelSpec& spec_;
  const Repeater& repeater_;
  Pieces pieces_;
  const ProbeTrainingOptions& options_;
  ScoreSource source_;
  ProbeSums sums_;
  bool whole_ = true;  // all layers' sums hold the same pieces
  Clock::time_point kept_at_ = Clock::now();
};

}  // namespace

void require_probe_model(const model::ModelSpec& spec) {
  require(!spec.dms && !spec.dmc, "--model: it decides by itself; a probe goes with a plain model");
  require(!spec.has_latents(), "--model: no probe is trained for latent attention");
  require(spec.has_equal_heads(),
          "--model: no probe is trained for layers with different heads, as its format has one "
          "number of KV heads");
  require(spec.compressing_before(spec.layer_count()) > 0,
          "--model: no layer compresses, as all attend to a window");
  require(!model::compresses_behind_layer_norm(spec),
          "--model: no probe is trained for layers with LayerNorm, as probes read an RMSNorm");
}

float ProbeFit::threshold(double ratio) const {
  assert(!predicted.empty() && ratio >= 1.0);
  const auto evicted = static_cast<double>(predicted.size()) * (1.0 - 1.0 / ratio);
  return predicted[std::min(static_cast<std::size_t>(evicted), predicted.size() - 1)];
}

std::size_t held_out_pieces(std::size_t pieces) {
  return std::max<std::size_t>(1, pieces / kHeldOutShare);
}

TrainedProbe train_probe(const engine::LoadedModel& model, const Repeater& repeater, Pieces pieces,
                         const ProbeTrainingOptions& options) {
  assert(pieces.size() >= 2);
  return ProbeTrainer(model, repeater, pieces, options).train();
}

}  // namespace winnow::train
