#include "model/decision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/adapter.h"
#include "model/channels.h"

namespace winnow::model {
namespace {

// DMS decisions from score(token, head); under "layer" granularity head 0 decides for all.
template <class Score>
void set_by_scores(const ModelSpec& spec, const Decisions& decisions, const Score& score) {
  const DmsConfig& dms = *spec.dms;
  for (std::size_t t = 0; t < decisions.flags.rows; ++t) {
    const auto flags = decisions.flags.row(t);
    for (std::size_t h = 0; h < flags.size(); ++h) {
      const float logit = dms.scale * score(t, dms.per_layer ? 0 : h) - dms.offset;
      decisions.logits.row(t)[h] = logit;
      flags[h] = dms.evict && logit > 0.0F ? 1 : 0;
    }
  }
}

}  // namespace

void decide_by_adapter(ops::Context& context, const ModelSpec& spec, const AdapterWeights& adapter,
                       ops::Matrix<const float> hidden, std::span<const std::int32_t> positions,
                       const Decisions& decisions) {
  const ops::Workspace::Scope scope(*context.workspace);
  const std::size_t heads = decisions.flags.cols;
  const ops::Matrix<float> x(context.workspace->take<float>(hidden.rows * heads).data(),
                             hidden.rows, heads);
  apply_adapter(context, spec, adapter, hidden, x);
  set_by_scores(spec, decisions, [&x](std::size_t t, std::size_t h) { return x.row(t)[h]; });
  for (std::size_t t = 0; t < positions.size(); ++t) {
    if (positions[t] < spec.dms->keeps_first) {
      std::ranges::fill(decisions.flags.row(t), 0);
      std::ranges::fill(decisions.logits.row(t), -std::numeric_limits<float>::infinity());
    }
  }
}

void decide_by_channel(const ModelSpec& spec, ops::Matrix<const float> queries,
                       ops::Matrix<const float> keys, const Decisions& decisions) {
  if (spec.dms) {
    set_by_scores(spec, decisions, [&](std::size_t t, std::size_t h) {
      return queries.row(t)[query_column(spec, h)];
    });
    return;
  }
  for (std::size_t t = 0; t < decisions.flags.rows; ++t) {
    for (std::size_t h = 0; h < decisions.flags.cols; ++h) {
      const std::size_t deciding = spec.dmc->per_layer ? 0 : h;
      const float alpha_logit = keys.row(t)[key_column(spec, deciding)] - spec.dmc->offset;
      const float omega_logit = queries.row(t)[query_column(spec, deciding)];
      decisions.flags.row(t)[h] = alpha_logit > 0.0F ? 1 : 0;
      decisions.omegas.row(t)[h] = 1.0F / (1.0F + std::exp(-omega_logit));
    }
  }
}

}  // namespace winnow::model
